// Loads kernels ahead of their first launch.
#ifndef PERIGEE_KERNELS_CUDA_LOAD_KERNELS_CUH_
#define PERIGEE_KERNELS_CUDA_LOAD_KERNELS_CUH_

#include <cuda_runtime_api.h>

namespace perigee {

// 0, or the first cudaError_t. Asking for a kernel's attributes loads it.
template <typename... Kernels>
int LoadKernels(Kernels... kernels) {
  int error = 0;
  cudaFuncAttributes attributes;
  const auto load = [&](const void* kernel) {
    if (error == 0) error = cudaFuncGetAttributes(&attributes, kernel);
  };
  (load(reinterpret_cast<const void*>(kernels)), ...);
  return error;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LOAD_KERNELS_CUH_
