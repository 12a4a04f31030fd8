#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

absl::Status CopyToDevice(int, std::byte*, absl::Span<const std::byte>) {
  return BuiltWithoutCuda();
}

absl::Status CopyFromDevice(int, absl::Span<std::byte>, const std::byte*) {
  return BuiltWithoutCuda();
}

absl::Status FillDevice(int, std::byte*, uint8_t, size_t) { return BuiltWithoutCuda(); }

}  // namespace perigee
