// Copies of remote experts' weights into this rank's slots.
#ifndef PERIGEE_KERNELS_CUDA_PREFETCH_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_PREFETCH_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/rank_barrier_arguments.h"
#include "kernels/cuda/weights_view.h"

namespace perigee {

// Entry barrier, LaunchFillSlots, exit barrier and LaunchReportStaleSlot. bad_slots [B + 1]
// is the prefetches' own, zero at first.
int LaunchPrefetch(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const EntryArguments& entry, const PlanView& plan, const WeightsView& weights,
                   uint32_t* bad_slots);

// How slots are filled beside a dispatch.
struct FillPace {
  // Of a dispatch that makes the plan and may still run, having told how its planning ended; 0:
  // there is none.
  uint64_t made_by = 0;
  // As many blocks do not wait until all ranks have sent the rows of that dispatch, which more
  // waits for than for the slots.
  int32_t early_blocks = INT32_MAX;
};
// Those of `blocks`, where the fill shares the link with the dispatch: 4 of 24 and 2 of 16 by
// measurement (docs/performance.md).
constexpr int32_t EarlyBlocks(int32_t blocks) { return blocks / 6; }

// When all ranks have entered an operation: fills and tags the slots that the plan uses. A slot
// whose home held other weights, before or after the copy, is left empty and noted in PathState.
int LaunchFillSlots(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                    const FillPace& pace, const PlanView& plan, const WeightsView& weights,
                    uint32_t* bad_slots);

// After the exit barrier, which all ranks pass whatever one has found: raises the report.
int LaunchReportStaleSlot(const LaunchTarget& target, const PathView& path,
                          const OperationMark& mark, const PlanView& plan);

// Loads the kernels, which their first launch would do at a worse time.
int LoadPrefetchKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PREFETCH_LAUNCH_H_
