#include "kernels/device/caller_stream.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

absl::Status CopyOnStream(int, CUstream_st*, void*, const void*, size_t) {
  return BuiltWithoutCuda();
}

absl::StatusOr<bool> IsStreamDone(int, CUstream_st*) { return BuiltWithoutCuda(); }

absl::Status WaitForWord(int, CUstream_st*, const uint64_t*, uint64_t) {
  return BuiltWithoutCuda();
}

absl::Status WriteWordOnStream(int, CUstream_st*, uint64_t*, uint64_t) {
  return BuiltWithoutCuda();
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Register(int, std::byte*,
                                                                             size_t) {
  return BuiltWithoutCuda();
}

RegisteredMemory::~RegisteredMemory() = default;

uint64_t RegisteredMemory::AddressOf(const uint64_t* word) const {
  return device_address_ + (reinterpret_cast<const std::byte*>(word) - memory_);
}

absl::Status RegisteredMemory::WriteOnStream(CUstream_st*, const uint64_t*, uint64_t) const {
  return BuiltWithoutCuda();
}

absl::Status RegisteredMemory::WaitOnStream(CUstream_st*, const uint64_t*, uint64_t) const {
  return BuiltWithoutCuda();
}

}  // namespace perigee
