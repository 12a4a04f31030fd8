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

// Before launches that take more than 48 KiB of dynamic shared memory. 0, or the first cudaError_t.
template <typename... Kernels>
int AllowSharedMemory(size_t bytes, Kernels... kernels) {
  int error = 0;
  const auto allow = [&](const void* kernel) {
    if (error != 0) return;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(bytes));
  };
  (allow(reinterpret_cast<const void*>(kernels)), ...);
  return error;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LOAD_KERNELS_CUH_
