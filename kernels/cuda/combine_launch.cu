#include <cuda_runtime_api.h>

#include "kernels/cuda/combine_kernel.cuh"
#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/load_kernels.cuh"

namespace perigee {

int LaunchSumDuplicates(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                        bool leaves_own) {
  return LaunchDependent(target, SumDuplicatesKernel, target.sms, SummerShape::kThreads,
                         SummerShape::kSharedBytes, path, plan, leaves_own);
}

int LaunchSumOwn(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                 const PlanView& plan) {
  return LaunchDependent(target, SumOwnKernel, target.sms, SummerShape::kThreads,
                         SummerShape::kSharedBytes, path, mark, plan);
}

int LaunchCombine(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry, const GatherArguments& arguments) {
  return LaunchDependent(target, CombineKernel, target.sms, SummerShape::kThreads,
                         SummerShape::kSharedBytes, path, mark, entry, arguments);
}

int LoadCombineKernels() {
  const int error = AllowSharedMemory(SummerShape::kSharedBytes, SumDuplicatesKernel, SumOwnKernel,
                                      CombineKernel);
  return error != 0 ? error : LoadKernels(SumDuplicatesKernel, SumOwnKernel, CombineKernel);
}

}  // namespace perigee
