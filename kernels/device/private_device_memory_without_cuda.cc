#include "kernels/device/cuda_status.h"
#include "kernels/device/private_device_memory.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> PrivateDeviceMemory::Allocate(int, size_t) {
  return BuiltWithoutCuda();
}

PrivateDeviceMemory::~PrivateDeviceMemory() = default;

}  // namespace perigee
