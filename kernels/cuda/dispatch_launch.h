// The movement of a dispatch, between its barriers and after them.
#ifndef PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"

namespace perigee {

struct SendArguments {
  const BFloat16* hidden = nullptr;      // [S, H]
  const float* route_weights = nullptr;  // [S, K], or null: none are sent
  int32_t token_count = 0;
  bool send_links = false;  // whose duplicate a row is: for a plan that is being made
  PlanView plan;
};

// Between the barriers: each token's row to every rank that has a route of it, every route's
// weight, and zeros into this rank's own padding rows.
int LaunchSend(const LaunchTarget& target, const PathView& path, const SendArguments& arguments);

// After the exit barrier: each primary row that has duplicates is read once and written to them.
int LaunchExpand(const LaunchTarget& target, const PathView& path, const PlanView& plan);

// Copies of used rows and their weights; null where none is wanted.
struct CopyArguments {
  BFloat16* rows_to = nullptr;
  const BFloat16* rows_from = nullptr;
  float* weights_to = nullptr;
  const float* weights_from = nullptr;
};
int LaunchCopyUsedRows(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                       const CopyArguments& copy);

// Loads the kernels, which their first launch would do at a worse time.
int LoadDispatchKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_
