#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

bool IsCudaContextLost(int) { return false; }

absl::Status CudaStatus(int code, absl::string_view doing) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(doing, ": CUDA error ", code, " in a binary built without CUDA"));
}

absl::Status BuiltWithoutCuda() {
  return absl::FailedPreconditionError("this binary was built without CUDA");
}

void LogCudaError(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "perigee: %s\n", status.ToString().c_str());
}

}  // namespace perigee
