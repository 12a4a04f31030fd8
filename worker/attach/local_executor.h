// Executes the commands of one attachment on its rank: decodes what came out of the ring, looks up
// plans and memory, runs the operation, and says how it ended. Keeps this rank's place among the
// others: a collective command that cannot be launched is declined, so that they leave there too.
#ifndef PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_
#define PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "kernels/layout/client_arena.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"
#include "proto/support/clock.h"
#include "proto/v1/error.pb.h"
#include "worker/ops/group_view.h"
#include "worker/ops/rank_operations.h"

namespace perigee {

// From one thread at a time, but for in_collective.
class LocalExecutor {
 public:
  // What the arguments refer to outlives the executor. `first_sequence` is of its first collective
  // operation.
  LocalExecutor(const GroupView& group, const ProgramSite& site, const ClientArenaView& arena,
                Sequence first_sequence, const Clock& clock);

  // Blocks until the command has ended, bounded by the data path's timeouts and its abort word.
  // Position is left 0. On success nothing is allocated here but what a new plan takes.
  LocalCompletion Execute(const CommandEntry& entry);

  // Set once a command has left this rank out of step with the others: they cannot go on in this
  // generation.
  const absl::optional<v1::RankStatus>& fatal() const { return fatal_; }
  // The sequence of the collective operation under way, or 0. From any thread.
  uint64_t in_collective() const { return in_collective_.load(std::memory_order_acquire); }
  Sequence last_sequence() const { return Sequence(next_sequence_.value - 1); }
  size_t plan_count() const { return plans_.size(); }
  // Plans die before the data path that made them.
  void Clear() { plans_.clear(); }

 private:
  Sequence TakeSequence();
  Failure Operate(const LocalEmpty&, Sequence) { return Failure(); }
  Failure Operate(const LocalDispatch& operation, Sequence sequence);
  Failure Operate(const LocalDispatchWithPlan& operation, Sequence sequence);
  Failure Operate(const LocalPrefetchWeights& operation, Sequence sequence);
  Failure Operate(const LocalRunExperts& operation, Sequence sequence);
  Failure Operate(const LocalCombine& operation, Sequence sequence);
  Failure Operate(const LocalBarrier& operation, Sequence sequence);
  Failure Operate(const LocalReleasePlan& operation, Sequence sequence);
  Failure Operate(const LocalClonePlan& operation, Sequence sequence);

  DispatchInput Input(int32_t token_count, bool route_weights) const;
  absl::StatusOr<PlanPtr> FindPlan(LocalPlanId id) const;
  absl::Status CheckPlanRoom(LocalPlanId id) const;
  void ShowPlan(const PlanPtr& plan);
  Failure Declined(Failure failure, Sequence sequence, bool writes_shard);
  LocalCompletion Report(const Failure& failure);

  const GroupView& group_;
  const ProgramSite site_;
  const ClientArenaView arena_;
  const Clock& clock_;
  RankOperations operations_;
  Sequence next_sequence_;
  absl::flat_hash_map<uint64_t, PlanPtr> plans_;  // by LocalPlanId
  absl::optional<v1::RankStatus> fatal_;
  std::atomic<uint64_t> in_collective_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_
