// Sums of slot gradients into the gradients of this rank's own experts, and the clearing of slots.
#ifndef PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_LAUNCH_H_

#include "kernels/cuda/gradients_view.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/rank_barrier_arguments.h"

namespace perigee {

// Entry barrier, sums, exit barrier: each of this rank's experts that sits in slots gets what they
// hold, in ascending (rank, slot).
int LaunchReduceGradients(const LaunchTarget& target, const PathView& path,
                          const OperationMark& mark, const EntryArguments& entry,
                          const PlanView& plan, const GradientsView& gradients);

// Behind it: zeroes this rank's slots that the plan uses.
int LaunchClearGradients(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                         const GradientsView& gradients);

// Loads the kernels, which their first launch would do at a worse time.
int LoadReduceGradientsKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_LAUNCH_H_
