#include "kernels/cuda/cuda_backend.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions&) {
  return BuiltWithoutCuda();
}

}  // namespace perigee
