#include "kernels/device/memory_use.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<DeviceMemoryUse> ReadDeviceMemoryUse(int device) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  absl::Status status = CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes),
                                   absl::StrCat("asking device ", device, " for its free memory"));
  if (!status.ok()) return status;
  return DeviceMemoryUse{free_bytes, total_bytes};
}

absl::Status NameFreeMemory(int device, size_t needed_bytes, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  const absl::StatusOr<DeviceMemoryUse> use = ReadDeviceMemoryUse(device);
  return absl::ResourceExhaustedError(absl::StrCat(
      std::string(status.message()), "; ", needed_bytes, " bytes are needed, ",
      use.ok() ? absl::StrCat(use->free_bytes, " of ", use->total_bytes) : "an unknown number",
      " are free"));
}

}  // namespace perigee
