#include <cuda_runtime_api.h>

#include "kernels/cuda/combine_kernel.cuh"
#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/load_kernels.cuh"

namespace perigee {

int LaunchSumDuplicates(const LaunchTarget& target, const PathView& path, const PlanView& plan) {
  SumDuplicatesKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, plan);
  return cudaGetLastError();
}

int LaunchSumTokens(const LaunchTarget& target, const PathView& path,
                    const GatherArguments& arguments) {
  if (path.geometry.tokens == 0) return 0;
  SumTokensKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, arguments);
  return cudaGetLastError();
}

int LoadCombineKernels() { return LoadKernels(SumDuplicatesKernel, SumTokensKernel); }

}  // namespace perigee
