// Owner-sharded source: rows stay with the rank that owns their tokens, in memory that every rank
// can read, and whoever needs one fetches it. Opt-in storage: DataPathOptions::sources.
//
//   the owner writes its tokens' rows and route weights into its source shard, on every rank
//   PrepareSource  all ranks plan; a view says where each row that belongs here comes from
//   Materialise    each rank fetches what belongs here: what then lies in the shard, and the plan,
//                  are bit for bit those of DataPath::Dispatch
//
// A consumer that can read peers' memory does without Materialise: it resolves rows by the view and
// computes from where they are. When its reads have ended, or in the order of the data path's
// operations, every rank then calls DataPath::Barrier.
//
// An owner may write its source shard again when every rank has passed a Materialise of the view,
// or that Barrier: it has then passed it itself.
//
// One view lives at a time: it dies with the next PrepareSource, and with its data path. One that
// ends early leaves it alive, but not on a rank that had it store rows or weights. Nothing that
// happens in the shards touches a view, a prepared publication neither.
#ifndef PERIGEE_KERNELS_OWNER_SOURCE_H_
#define PERIGEE_KERNELS_OWNER_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/plan_arrays.h"
#include "kernels/living_source.h"
#include "kernels/mapping_access.h"

namespace perigee {

// What a view is planned from, and what is stored in this rank's source shard first.
struct SourceInput {
  const int32_t* topk_experts = nullptr;  // [S, K], -1 = masked route
  int32_t token_count = 0;                // of S; the other tokens are not read
  // [S, H] and [S, K]; either may be null, or lie in the source shard already: what is there stays.
  const BFloat16* hidden = nullptr;
  const float* route_weights = nullptr;
  // Where the plan is wanted, too; all of it or nothing, written only where the operation ends
  // well.
  PlanArrays plan = {};
};

// Where rows come from, in addresses of its data path.
struct SourceView {
  // [NvS] of each row of this rank, there when PrepareSource has ended. Encoded as in
  // kernels/plan/destination.h: with N = S * K,
  //   r * N + i        the row is that of route i (token i / K) of rank r: the token's first here
  //   -(r * N + i) - 1 likewise, of a further route: the same row as the first one's
  //   INT32_MIN        padding, or past the last group
  const int32_t* origins = nullptr;
  int32_t routes = 0;                       // N
  std::vector<const BFloat16*> hidden;      // [R] every rank's [S, H]
  std::vector<const float*> route_weights;  // [R] every rank's [S, K]
  std::vector<AccessSet> access;            // [R] what is legal on that rank's two
};

// A view as its backend keeps it, bound to the data path that made it. The tag is that of
// PrepareSource, and that of the plan.
class SourceHandle {
 public:
  virtual ~SourceHandle() = default;
  virtual ObjectTag tag() const = 0;
  virtual RankId rank() const = 0;  // that made it
  virtual int32_t token_count() const = 0;
  // Complete when PrepareSource has ended, whether rows are materialised or not. Outlives the view.
  virtual const PlanPtr& plan() const = 0;
  // Where the data path queues, one whose PrepareSource is queued is taken to live.
  bool lives() const { return living().sequence() == tag().sequence; }
  // INVALID_ARGUMENT, naming the view and the one that lives: it is dead.
  absl::Status CheckLives() const;
  // For a consumer that accesses source shards in the ways of `needed`. INVALID_ARGUMENT: as
  // CheckLives, or naming the rank, what its mapping allows and what is needed, where it allows
  // less. What is handed out is good as long as the view lives.
  absl::StatusOr<const SourceView*> Take(AccessSet needed) const;

 protected:
  virtual const LivingSource& living() const = 0;
  virtual const SourceView& view() const = 0;
};
using SourcePtr = std::shared_ptr<const SourceHandle>;

// "{rank 0, buffer 3, generation 7, sequence 5}".
std::string DescribeSource(RankId rank, const ObjectTag& tag);

// A side of a DataPath: threads, order, sequences and errors are those of its operations.
class OwnerSource {
 public:
  virtual ~OwnerSource() = default;

  // Collective. Stores, where there is something to store, and plans. Orders what every rank has
  // written into its source shard before all reads by the view. No row goes to another rank.
  virtual absl::StatusOr<SourcePtr> PrepareSource(Sequence sequence, const SourceInput& input) = 0;
  // Collective. Fetches each row that has a route here once from its owner and writes it to all its
  // places, each route's weight likewise, and zeroes padding; when it has ended, every rank has
  // read what it needs. The same view may be materialised again.
  virtual absl::StatusOr<PlanPtr> Materialise(Sequence sequence, const SourcePtr& source,
                                              const DispatchOutput& output) = 0;
  // This rank's own [S, H] and [S, K], for a producer that writes in place.
  virtual BFloat16* source_hidden() const = 0;
  virtual float* source_route_weights() const = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_OWNER_SOURCE_H_
