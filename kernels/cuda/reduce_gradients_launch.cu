#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/reduce_gradients_kernel.cuh"
#include "kernels/cuda/reduce_gradients_launch.h"

namespace perigee {

int LaunchReduceGradients(const LaunchTarget& target, const PathView& path,
                          const OperationMark& mark, const EntryArguments& entry,
                          const PlanView& plan, const GradientsView& gradients) {
  return LaunchDependent(target, ReduceGradientsKernel, target.sms, GradientStages::kThreads,
                         GradientStages::kSharedBytes, path, mark, entry, plan, gradients);
}

int LaunchClearGradients(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                         const GradientsView& gradients) {
  return LaunchDependent(target, ClearGradientsKernel, target.sms, kClearThreads, 0, path, plan,
                         gradients);
}

int LoadReduceGradientsKernels() {
  const int error = AllowSharedMemory(GradientStages::kSharedBytes, ReduceGradientsKernel);
  return error != 0 ? error : LoadKernels(ReduceGradientsKernel, ClearGradientsKernel);
}

}  // namespace perigee
