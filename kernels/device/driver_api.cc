#include "kernels/device/driver_api.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/driver_table.h"

namespace perigee {
namespace {

absl::StatusOr<void*> Find(const char* name, unsigned int version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  if (error != cudaSuccess) {
    return CudaStatus(error, absl::StrCat("looking up ", name, " in the CUDA driver"));
  }
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("the CUDA driver has no ", name, " of version ", version));
  }
  return function;
}

absl::StatusOr<const DriverApi*> Load() {
  static DriverApi api;
#define PERIGEE_DRIVER_FIND(name, version)                           \
  {                                                                  \
    const absl::StatusOr<void*> function = Find(#name, version);     \
    if (!function.ok()) return function.status();                    \
    api.name = reinterpret_cast<PFN_##name##_v##version>(*function); \
  }
  PERIGEE_DRIVER_FUNCTIONS(PERIGEE_DRIVER_FIND)
#undef PERIGEE_DRIVER_FIND
  // The runtime library has done it by now; once more costs nothing.
  if (absl::Status status = CudaStatus(api.cuInit(0), "cuInit"); !status.ok()) return status;
  return &api;
}

}  // namespace

absl::StatusOr<const DriverApi*> GetDriverApi() {
  static const auto& api = *new absl::StatusOr<const DriverApi*>(Load());
  return api;
}

}  // namespace perigee
