// Planning on the device: every rank plans for itself, by the integer rules of docs/planning.md, so
// all plan alike and nobody waits for a planner.
#ifndef PERIGEE_KERNELS_CUDA_PLANNING_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_PLANNING_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/planning_scratch.h"

namespace perigee {

struct PlanningArguments {
  const int32_t* topk_experts = nullptr;  // [S, K]; only token_count tokens are read
  int32_t token_count = 0;
  PlanningScratch scratch;
  PlanView plan;
};

// Before the entry barrier: copies this rank's routes, counts them, and writes the histogram and
// the planning header into its own shard. A bad route is noted in PathState.
int LaunchCountRoutes(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                      const PlanningArguments& arguments);

// After it: fills in the plan but for its duplicate lists. Breaks the path where a peer published
// what cannot be a histogram.
int LaunchMakePlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const PlanningArguments& arguments);

// After the exit barrier: the plan's duplicate lists, from the maps in this rank's shard. Breaks
// the path where what peers wrote is no set of such lists.
int LaunchListDuplicates(const LaunchTarget& target, const PathView& path,
                         const OperationMark& mark, const PlanningArguments& arguments);

// Loads the kernels, which their first launch would do at a worse time.
int LoadPlanningKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLANNING_LAUNCH_H_
