#include "tests/device/random_bytes.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/private_device_memory.h"
#include "tests/device/link_launch.h"

namespace perigee {
namespace {

// Calls `launch` with the stream's device current and waits for it.
template <typename Launch>
absl::Status RunOn(const Stream& stream, const char* what, Launch launch) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(stream.device());
  if (!scope.ok()) return scope.status();
  absl::Status status = CudaStatus(launch(), absl::StrCat(what, " on device ", stream.device()));
  return status.ok() ? stream.Synchronize() : status;
}

}  // namespace

absl::Status FillRandom(const Stream& stream, std::byte* to, size_t size_bytes, uint64_t seed) {
  return RunOn(stream, "filling memory", [&] {
    return LaunchLinkFill(stream.get(), to, static_cast<int64_t>(size_bytes), seed);
  });
}

absl::Status CheckRandom(const Stream& stream, const std::byte* data, size_t size_bytes,
                         uint64_t seed) {
  const auto counter = PrivateDeviceMemory::Allocate(stream.device(), sizeof(uint64_t));
  if (!counter.ok()) return counter.status();
  absl::Status status = RunOn(stream, "checking memory", [&] {
    return LaunchLinkCompare(stream.get(), data, static_cast<int64_t>(size_bytes), seed,
                             (*counter)->data());
  });
  if (!status.ok()) return status;
  uint64_t differing = 0;
  status = CopyFromDevice(
      stream.device(), absl::MakeSpan(reinterpret_cast<std::byte*>(&differing), sizeof(differing)),
      (*counter)->data());
  if (!status.ok() || differing == 0) return status;
  return absl::InternalError(
      absl::StrCat(differing, " of ", size_bytes / sizeof(uint64_t), " words are wrong"));
}

}  // namespace perigee
