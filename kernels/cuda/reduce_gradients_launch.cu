#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/reduce_gradients_kernel.cuh"
#include "kernels/cuda/reduce_gradients_launch.h"

namespace perigee {

int LaunchReduceGradients(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                          const GradientsView& gradients) {
  ReduceGradientsKernel<<<target.sms, kReduceThreads, 0, target.stream>>>(path, plan, gradients);
  return cudaGetLastError();
}

int LaunchClearGradients(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                         const GradientsView& gradients) {
  ClearGradientsKernel<<<target.sms, kReduceThreads, 0, target.stream>>>(path, plan, gradients);
  return cudaGetLastError();
}

int LoadReduceGradientsKernels() {
  return LoadKernels(ReduceGradientsKernel, ClearGradientsKernel);
}

}  // namespace perigee
