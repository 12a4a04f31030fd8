// Executes the commands of one attachment on its rank: decodes what came out of the ring, looks up
// plans and memory, launches the operation, and says how it ended. Keeps this rank's place among
// the others: a collective command that cannot be launched is declined, so that they leave there
// too.
//
// Where the data path queues, many commands are under way at a time. When one fails, those launched
// behind it have not been done, and say so; what was noted as done is undone.
#ifndef PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_
#define PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

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
  // Whether the client has said that a slot's last read is over (CommandConsumer::TakeRead).
  using TakeRead = std::function<bool(const LocalReleaseSlot& release)>;

  // What the arguments refer to outlives the executor. `first_sequence` is of its first collective
  // operation.
  LocalExecutor(const GroupView& group, const ProgramSite& site, const ClientArenaView& arena,
                Sequence first_sequence, const Clock& clock, TakeRead take_read = nullptr);

  // Launches the command's operation. Where the data path does not queue, blocks until it has
  // ended, bounded by the data path's timeouts and its abort word.
  // The token: as DecodeCommand has it.
  void Begin(const CommandEntry& entry,
             const absl::optional<PublicationTokenBytes>& token = absl::nullopt);
  // The command is not to be done, for this reason (DEADLINE_EXCEEDED: its inputs have not come in
  // time); others are told where they wait for it.
  void Refuse(const CommandEntry& entry, const absl::Status& why);
  // How the first of the commands begun has ended, which is over with that; none while it runs.
  // Blocks, bounded as above, only where an operation has failed: until what was launched behind it
  // has been declined. Position is left 0.
  absl::optional<LocalCompletion> TakeEnded();
  bool idle() const { return begun_.empty(); }
  // Looks at what the client says about last reads. A dispatch that waits for one is let go by
  // that, where the data path queues.
  void PassReads();
  // The client has gone: its readers of released slots are not waited for, from now on.
  void EndReads() { reads_over_ = true; }

  // Set once a command has left this rank out of step with the others: they cannot go on in this
  // generation.
  const absl::optional<v1::RankStatus>& fatal() const { return fatal_; }
  // The sequence of the first collective operation under way, or 0. From any thread.
  uint64_t in_collective() const { return in_collective_.load(std::memory_order_acquire); }
  Sequence last_sequence() const { return Sequence(next_sequence_.value - 1); }
  size_t plan_count() const { return plans_.size(); }
  // Plans die before the data path that made them; a target, a source view and what slots hold with
  // the attachment.
  void Clear();

 private:
  // A command whose end has not been taken.
  struct Begun {
    LocalCompletion completion;  // as far as it is known
    Failure failure;             // likewise
    bool launched = false;       // and its end not yet seen
    bool writes_shard = false;
    absl::Duration begin;
    ShardRows rows_before;
    LocalPlanId plan_id;  // that it has kept `plan` under
    PlanPtr plan;
    PlanPtr replaced;  // that was kept there before, or null
    bool makes_plan = false;
    bool makes_source = false;
    KeptSource source_before;  // where it makes one
    RingSlot takes;            // an output slot; without an identity: none
    absl::optional<RingSlot> releases;
    bool in_order = false;  // of a release: it is undone with what failed ahead of it
  };
  // A slot that is released and whose last read is not known to be over.
  struct Unread {
    RingSlot slot;
    LocalReleaseSlot release;
    ReleaseWord word;
  };

  void Start(const CommandEntry& entry, const absl::StatusOr<LocalCommand>& command);
  void KeepPlan(LocalPlanId id, PlanPtr plan, bool made);
  void LookAtDevice();
  // The first `count` launched have ended well.
  void NoteEnded(size_t count);
  void Settle();
  void Undo(size_t first_failed, const Failure& failure);
  void UndoPlans(size_t first_failed);
  // Marks the releases that are not done either.
  void UndoReleases(size_t first_failed);
  void ShowFirstCollective();
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
  Failure Operate(const LocalReduceGradients& operation, Sequence sequence);
  Failure Operate(const LocalPrepareDispatch& operation, Sequence sequence);
  Failure Operate(const LocalPreparePublication& operation, Sequence sequence);
  Failure Operate(const LocalStoreRows& operation, Sequence sequence);
  Failure Operate(const LocalPublish& operation, Sequence sequence);
  Failure Operate(const LocalPrepareSource& operation, Sequence sequence);
  Failure Operate(const LocalMaterialise& operation, Sequence sequence);
  Failure Operate(const LocalReleaseSlot& operation, Sequence sequence);
  // With output slots.
  RankOperations::SlotTaken DispatchIntoSlot(Sequence sequence, const DispatchInput& input,
                                             PlanPtr saved, int32_t wanted);
  Failure RunExpertsOfSlot(const LocalRunExperts& operation, const PlanPtr& plan);
  Failure CombineOfSlot(const LocalCombine& operation, Sequence sequence, const PlanPtr& plan);
  RingSlot SlotOf(RingKind ring, const LocalSlot& slot) const;
  // A refusal, with its reason.
  Failure OfSlot(RingKind ring, Failure failure) const;
  // Whether what takes the slot is still under way.
  bool IsBeingTaken(const RingSlot& slot) const;
  // What takes a slot has ended well, and the client has not been told yet.
  void DropLeftMark(const Begun& begun);

  DispatchInput Input(int32_t token_count, bool route_weights) const;
  absl::StatusOr<PlanPtr> FindPlan(LocalPlanId id) const;
  absl::Status CheckPlanRoom(LocalPlanId id) const;
  // Whether this rank's part in it is queued now.
  bool Decline(Begun& begun);
  LocalCompletion Report(Begun begun);

  const GroupView& group_;
  const ProgramSite site_;
  const ClientArenaView arena_;
  const Clock& clock_;
  const TakeRead take_read_;
  RankOperations operations_;
  Sequence next_sequence_;
  absl::flat_hash_map<uint64_t, PlanPtr> plans_;  // by LocalPlanId
  std::deque<Begun> begun_;
  std::vector<Unread> unread_;  // in the order of their releases
  bool reads_over_ = false;
  absl::optional<v1::RankStatus> fatal_;
  std::atomic<uint64_t> in_collective_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_LOCAL_EXECUTOR_H_
