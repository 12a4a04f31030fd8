#include "kernels/backend_registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/device/device_info.h"
#include "kernels/host/host_backend.h"

namespace perigee {

std::vector<std::string> BackendNames() { return {"host", "cuda"}; }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name) {
  if (name == "host") return CreateHostBackend();
  if (name == "cuda") {
    return absl::UnimplementedError(
        absl::StrCat("backend cuda: this version has no CUDA data path, use backend host; on this "
                     "machine: ",
                     DescribeCudaDevices(QueryCudaDevices())));
  }
  return absl::InvalidArgumentError(absl::StrCat("backend is \"", name, "\", expected one of ",
                                                 absl::StrJoin(BackendNames(), ", ")));
}

}  // namespace perigee
