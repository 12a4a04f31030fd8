#include "kernels/device/private_device_memory.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/memory_use.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> PrivateDeviceMemory::Allocate(
    int device, size_t size_bytes) {
  if (size_bytes == 0) return absl::InvalidArgumentError("cannot allocate 0 bytes");
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  void* data = nullptr;
  absl::Status status =
      CudaStatus(cudaMalloc(&data, size_bytes),
                 absl::StrCat("allocating ", size_bytes, " bytes on device ", device));
  if (!status.ok()) return NameFreeMemory(device, size_bytes, status);
  std::unique_ptr<PrivateDeviceMemory> memory(
      new PrivateDeviceMemory(device, static_cast<std::byte*>(data), size_bytes));
  status = FillDevice(device, memory->data(), 0, size_bytes);
  if (!status.ok()) return status;
  return memory;
}

PrivateDeviceMemory::~PrivateDeviceMemory() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaFree(data_), "freeing device memory") : scope.status());
}

}  // namespace perigee
