#include <cuda_runtime_api.h>

#include "kernels/cuda/combine_kernel.cuh"
#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/load_kernels.cuh"

namespace perigee {

int LaunchSumDuplicates(const LaunchTarget& target, const PathView& path, const PlanView& plan) {
  SumDuplicatesKernel<<<target.sms, SummerShape::kThreads, SummerShape::kSharedBytes,
                        target.stream>>>(path, plan);
  return cudaGetLastError();
}

int LaunchCombine(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry, const GatherArguments& arguments) {
  return LaunchDependent(target, CombineKernel, target.sms, SummerShape::kThreads,
                         SummerShape::kSharedBytes, path, mark, entry, arguments);
}

int LoadCombineKernels() {
  const int error =
      AllowSharedMemory(SummerShape::kSharedBytes, SumDuplicatesKernel, CombineKernel);
  return error != 0 ? error : LoadKernels(SumDuplicatesKernel, CombineKernel);
}

}  // namespace perigee
