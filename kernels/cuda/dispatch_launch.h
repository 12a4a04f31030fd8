// A dispatch: planning, movement between the barriers, expansion after them. Every rank plans for
// itself, by the integer rules of docs/planning.md, so all plan alike and nobody waits for a
// planner.
#ifndef PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/planning_scratch.h"
#include "kernels/cuda/rank_barrier_arguments.h"
#include "kernels/cuda/source_lists.h"
#include "kernels/layout/plan_arrays.h"

namespace perigee {

struct PlanningArguments {
  const int32_t* topk_experts = nullptr;  // [S, K]; only token_count tokens are read
  int32_t token_count = 0;
  PlanningScratch scratch;
  PlanView plan;
};

struct SendArguments {
  const BFloat16* hidden = nullptr;      // [S, H]
  const float* route_weights = nullptr;  // [S, K], or null: none are sent
  int32_t token_count = 0;
  PlanView plan;
  // Whether a kernel beside it (LaunchKeep) writes this rank's own rows: where the device is its
  // own and has SMs to spare.
  bool keeps_beside = false;
  // Whether the kernel goes on with what LaunchExpand does.
  bool expands_here = false;
};

// In one kernel of a block on each of the target's SMs, between an entry and an exit barrier of the
// group: counts this rank's routes, plans, sends each token's row to every rank that has a route of
// it and every route's weight, zeroes this rank's padding rows, and lists the duplicates. A rank's
// own tokens are written to their duplicates at once. A bad route is told at the entry; the path
// breaks where a peer published what cannot be a histogram or a duplicate map.
int LaunchDispatch(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const EntryArguments& entry, const PlanningArguments& planning,
                   const SendArguments& send);
// The same movement by a plan that exists.
int LaunchDispatchWithPlan(const LaunchTarget& target, const PathView& path,
                           const OperationMark& mark, const EntryArguments& entry,
                           const SendArguments& send);

// Behind it with send.keeps_beside, but running beside it from when its plan is there: this rank's
// own tokens to their places here, duplicates included, and zeros into its padding rows. One of its
// blocks ends with the dispatch.
int LaunchKeep(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
               const SendArguments& send);

// After them, waiting for nobody: each primary row that has duplicates is read once and written to
// them, unless its source has done so; own_too: it has not.
int LaunchExpand(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                 const PlanView& plan, bool own_too = false);

// The steps of a dispatch one by one (kernels/direct_publication.h). Up to the plan, with its entry
// barrier, at which a bad route is told.
int LaunchPlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
               const EntryArguments& entry, const PlanningArguments& planning);
// All that it sends but the rows; waits for nobody.
int LaunchSendRoutes(const LaunchTarget& target, const PathView& path, const SendArguments& send);
// Rows of primaries, on any rank; waits for nobody.
int LaunchStoreRows(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                    const SendArguments& send);
// An entry barrier, behind which all ranks have stored everything; then lists the duplicates, and
// with expands_here goes on with what LaunchExpand does with own_too.
int LaunchPublish(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry, const PlanView& plan, bool expands_here);

// The owner-sharded source (kernels/owner_source.h). As LaunchPlan; then, with an exit barrier,
// each rank lists what of all ranks belongs here: the plan is complete with that.
int LaunchPrepareSource(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                        const EntryArguments& entry, const PlanningArguments& planning,
                        const SourceLists& source);
// Between an entry and an exit barrier: fetches it, each row once, and zeroes padding.
int LaunchMaterialise(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                      const EntryArguments& entry, const PlanView& plan, const SourceLists& source);
// Ahead of the first: what is stored in this rank's source shard.
int LaunchStoreSource(const LaunchTarget& target, const PathView& path,
                      const StoreSourceArguments& store);

// Copies of used rows and their weights; null where none is wanted.
struct CopyArguments {
  BFloat16* rows_to = nullptr;
  const BFloat16* rows_from = nullptr;
  float* weights_to = nullptr;
  const float* weights_from = nullptr;
};
int LaunchCopyUsedRows(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                       const CopyArguments& copy);

// Copies the plan to where a caller wants to read it, unless the dispatch has failed.
int LaunchCopyPlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const PlanView& plan, const PlanArrays& to);

// Loads the kernels, which their first launch would do at a worse time.
int LoadDispatchKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DISPATCH_LAUNCH_H_
