// The movement of a combine.
#ifndef PERIGEE_KERNELS_CUDA_COMBINE_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_COMBINE_LAUNCH_H_

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/rank_barrier_arguments.h"

namespace perigee {

// Waiting for nobody: each primary row in this rank's shard becomes the sum of itself and its
// duplicates, in fp32, in order of k, rounded once. With leaves_own, not those of this rank's own
// tokens.
int LaunchSumDuplicates(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                        bool leaves_own);

// Those of this rank's own tokens: behind it, on as many blocks as the device has SMs to spare
// beside the combine, which is launched next and runs beside it.
int LaunchSumOwn(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                 const PlanView& plan);

struct GatherArguments {
  PlanView plan;
  BFloat16* hidden = nullptr;      // [S, H]
  float* route_weights = nullptr;  // [S, K], or null: no weights are gathered
  // Whether the kernel begins with what LaunchSumDuplicates does.
  bool sums_groups = false;
  // Whether LaunchSumOwn's kernel runs beside it.
  bool own_beside = false;
};
// Behind it, in one kernel of a block on each of the target's SMs, between an entry and an exit
// barrier of the group: each token's primary rows summed in order of k, rounded once; zeros where
// there are none.
int LaunchCombine(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry, const GatherArguments& arguments);

// Loads the kernels, which their first launch would do at a worse time.
int LoadCombineKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COMBINE_LAUNCH_H_
