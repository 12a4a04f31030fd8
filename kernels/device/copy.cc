#include "kernels/device/copy.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/stream_pool.h"

namespace perigee {
namespace {

// One stream for all copies of a device: a stream for each thread would take a hardware queue each
// (stream_pool.h). Never destroyed, as the pool.
struct CopyStreams {
  std::mutex mutex;
  std::map<int, std::unique_ptr<PooledStream>> of_device;  // guarded by mutex
};
CopyStreams& GetCopyStreams() {
  static CopyStreams* streams = new CopyStreams;
  return *streams;
}

// Runs `submit` on the copy stream of `device` and waits for it.
template <typename Submit>
absl::Status RunAndWait(int device, absl::string_view doing, Submit submit) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  CopyStreams& streams = GetCopyStreams();
  std::lock_guard<std::mutex> lock(streams.mutex);
  std::unique_ptr<PooledStream>& stream = streams.of_device[device];
  if (stream == nullptr) {
    absl::StatusOr<std::unique_ptr<PooledStream>> taken =
        PooledStream::Take(device, StreamPriority::kHigh);
    if (!taken.ok()) return taken.status();
    stream = *std::move(taken);
  }
  cudaStream_t raw = (*stream)->get();
  if (absl::Status status = CudaStatus(submit(raw), doing); !status.ok()) return status;
  return CudaStatus(cudaStreamSynchronize(raw), doing);
}

}  // namespace

absl::Status CopyToDevice(int device, std::byte* to, absl::Span<const std::byte> from) {
  return RunAndWait(device, absl::StrCat("copying ", from.size(), " bytes to device ", device),
                    [&](cudaStream_t stream) {
                      return cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                                             stream);
                    });
}

absl::Status CopyFromDevice(int device, absl::Span<std::byte> to, const std::byte* from) {
  return RunAndWait(device, absl::StrCat("copying ", to.size(), " bytes from device ", device),
                    [&](cudaStream_t stream) {
                      return cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost,
                                             stream);
                    });
}

absl::Status FillDevice(int device, std::byte* to, uint8_t value, size_t size_bytes) {
  return RunAndWait(
      device, absl::StrCat("filling ", size_bytes, " bytes of device ", device),
      [&](cudaStream_t stream) { return cudaMemsetAsync(to, value, size_bytes, stream); });
}

}  // namespace perigee
