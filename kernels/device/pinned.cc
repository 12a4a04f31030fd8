#include "kernels/device/pinned.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<PinnedMemory>> PinnedMemory::Allocate(int device,
                                                                     size_t size_bytes) {
  if (size_bytes == 0) return absl::InvalidArgumentError("cannot allocate 0 bytes");
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  void* host = nullptr;
  const std::string doing = absl::StrCat("allocating ", size_bytes, " bytes of pinned host memory");
  absl::Status status = CudaStatus(
      cudaHostAlloc(&host, size_bytes, cudaHostAllocMapped | cudaHostAllocPortable), doing);
  if (!status.ok()) return status;
  void* address = nullptr;
  status = CudaStatus(cudaHostGetDevicePointer(&address, host, 0), doing);
  if (!status.ok()) {
    LogCudaError(CudaStatus(cudaFreeHost(host), "freeing pinned memory"));
    return status;
  }
  std::memset(host, 0, size_bytes);
  return std::unique_ptr<PinnedMemory>(new PinnedMemory(
      device, static_cast<std::byte*>(host), static_cast<std::byte*>(address), size_bytes));
}

PinnedMemory::~PinnedMemory() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaFreeHost(host_), "freeing pinned memory")
                          : scope.status());
}

}  // namespace perigee
