// Direct publication: a dispatch in two phases, between which a producer writes its rows straight
// to where they belong, on any rank, instead of to memory of its own that a dispatch copies from.
//
//   PrepareDispatch      all ranks plan; a target says where each row goes
//     the producer writes its tokens' rows, on every rank
//     PreparePublication beside it: all that a dispatch moves but the rows
//   Publish              all ranks' rows are there; duplicates are expanded
//
// What then lies in the shard, and the plan, are bit for bit those of DataPath::Dispatch.
//
// One target lives at a time. It dies with its publication, with DropTarget, and with the next
// operation that writes the shard; but once its publication is prepared all of these except Publish
// are refused, RunExperts out of place excepted. A producer that still writes for a dead target
// spoils what lies there then.
#ifndef PERIGEE_KERNELS_DIRECT_PUBLICATION_H_
#define PERIGEE_KERNELS_DIRECT_PUBLICATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/plan_arrays.h"
#include "kernels/mapping_access.h"

namespace perigee {

// What a target is planned from.
struct TargetInput {
  const int32_t* topk_experts = nullptr;  // [S, K], -1 = masked route
  int32_t token_count = 0;                // of S; the other tokens are not read
  // Where the plan is wanted, too; all of it or nothing, written only where the operation ends
  // well.
  PlanArrays plan = {};
};

// Where a producer writes, in addresses of its data path. By kernels/plan/destination.h: route i of
// the rank, token i / K, has a row of its own where dst[i] >= 0, row dst[i] % NvS of rank
// dst[i] / NvS. Other routes get theirs from it when all is published.
struct ProducerView {
  const int32_t* dst = nullptr;   // [S, K], there when the operation has ended
  std::vector<BFloat16*> rows;    // [R] every rank's [NvS, H]
  int32_t logical_rows = 0;       // NvS
  std::vector<AccessSet> access;  // [R] what is legal on that rank's rows
};

// A target as its backend keeps it, bound to the data path that made it. The tag is that of
// PrepareDispatch, and will be that of the plan.
class TargetHandle {
 public:
  virtual ~TargetHandle() = default;
  virtual ObjectTag tag() const = 0;
  virtual int32_t token_count() const = 0;
  virtual const ProducerView& producer() const = 0;
  // For a producer that accesses shards in the ways of `needed`. INVALID_ARGUMENT, naming the rank,
  // what its mapping allows and what is needed, where it allows less.
  absl::StatusOr<const ProducerView*> Take(AccessSet needed) const {
    const absl::Status status = CheckAccess("the shard", producer().access, needed);
    if (!status.ok()) return status;
    return &producer();
  }
};
using TargetPtr = std::shared_ptr<const TargetHandle>;

// A side of a DataPath: threads, order, sequences and errors are those of its operations. Local
// operations are counted among those that queue.
class DirectPublication {
 public:
  virtual ~DirectPublication() = default;

  // Collective. Plans. When it has ended every rank has done with what lay in the shards, and
  // producers may write; what lay there is undefined from now on.
  virtual absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence,
                                                    const TargetInput& input) = 0;
  // Local. Sends this rank's route weights [S, K] and the map of its duplicates, and zeroes its
  // padding. Null: no route weights travel. Once for a target.
  virtual absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) = 0;
  // Local. The same where it may go on beside the operations called after it, up to Publish, which
  // waits for it: the route weights stay as they are until then.
  virtual absl::Status PreparePublicationBeside(const TargetPtr& target,
                                                const float* route_weights) {
    return PreparePublication(target, route_weights);
  }
  // Local. The plainest producer: copies rows of hidden [S, H] to their places.
  virtual absl::Status StoreRows(const TargetPtr& target, const BFloat16* hidden) = 0;
  // Collective. This rank's producer has written all its rows, before or in the order of the data
  // path's operations. Waits for all ranks' and expands duplicates. Whether it ends well or not,
  // the target is dead unless it was refused.
  virtual absl::StatusOr<PlanPtr> Publish(Sequence sequence, const TargetPtr& target,
                                          const DispatchOutput& output) = 0;
  // Gives up the target that lives, if one does, prepared or not. What lies in the shard is
  // undefined. Other ranks are not told: they are when this one declines its publication.
  virtual void DropTarget() = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DIRECT_PUBLICATION_H_
