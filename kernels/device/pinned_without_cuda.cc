#include "kernels/device/cuda_status.h"
#include "kernels/device/pinned.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<PinnedMemory>> PinnedMemory::Allocate(int, size_t) {
  return BuiltWithoutCuda();
}

PinnedMemory::~PinnedMemory() = default;

}  // namespace perigee
