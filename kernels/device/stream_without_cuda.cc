#include "kernels/device/cuda_status.h"
#include "kernels/device/stream.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<Stream>> Stream::Create(int, StreamPriority) {
  return BuiltWithoutCuda();
}

Stream::~Stream() = default;

absl::StatusOr<bool> Stream::Query() const { return BuiltWithoutCuda(); }

absl::Status Stream::Synchronize() const { return BuiltWithoutCuda(); }

}  // namespace perigee
