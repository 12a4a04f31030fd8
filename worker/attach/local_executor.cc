#include "worker/attach/local_executor.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

// What a client is told about an entry that says what no command says.
Failure NotACommand(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return Refused(WithReason(status, kReasonDeadline));
  return Refused(WithReason(
      status, absl::IsInvalidArgument(status) ? kReasonInvalidProgram : kReasonStaleObject));
}

bool WritesShard(const CommandEntry& entry) {
  switch (static_cast<CommandKind>(entry.kind)) {
    case CommandKind::kDispatch:
    case CommandKind::kDispatchWithPlan:
      return (entry.flags & kCommandSlot) == 0;
    case CommandKind::kRunExperts:
      return (entry.flags & kCommandExpertOutput) == 0;
    case CommandKind::kCombine:
    case CommandKind::kPrepareDispatch:
    case CommandKind::kMaterialise:
      return true;
    // A publish ends its target, and where there is none it leaves the rows alone.
    default:
      return false;
  }
}

bool UsesDataPath(uint32_t kind) {
  const auto of = static_cast<CommandKind>(kind);
  return IsCollective(of) || of == CommandKind::kRunExperts ||
         of == CommandKind::kPreparePublication || of == CommandKind::kStoreRows;
}

// Whether the ranks are at different places after it.
bool LeavesOutOfStep(const v1::RankStatus& status, const Failure& failure) {
  // Without a record it was found before anything was launched, and the others were told.
  const bool late = status.reason() == kReasonDeadline && failure.record;
  return late || status.reason() == kReasonOutOfStep || status.reason() == kReasonGenerationAborted;
}

Failure Both(const Failure& graver, const Failure& refusal) {
  const std::string message = absl::StrCat(
      graver.status.message(), "; this rank had refused the operation: ", refusal.status.message());
  return Failure{absl::Status(graver.status.code(), message), graver.record};
}

}  // namespace

LocalExecutor::LocalExecutor(const GroupView& group, const ProgramSite& site,
                             const ClientArenaView& arena, Sequence first_sequence,
                             const Clock& clock, TakeRead take_read)
    : group_(group),
      site_(site),
      arena_(arena),
      clock_(clock),
      take_read_(std::move(take_read)),
      operations_(site),
      next_sequence_(first_sequence) {
  plans_.reserve(kMaxPlans);
  // One that a program has left: the client's commands know of none, and would be refused for it.
  operations_.DropTarget();
  operations_.DropSlots();
  // The client may write the rows that such a view is of.
  site_.objects.DropSource();
}

void LocalExecutor::Begin(const CommandEntry& entry,
                          const absl::optional<PublicationTokenBytes>& token) {
  const CommandLimits limits{group_.generation,  next_sequence_,        site_.shape.geometry.tokens,
                             site_.shape.layers, site_.shape.gradients, site_.shape.source_storage};
  PassReads();
  Start(entry, DecodeCommand(entry, limits, token));
}

void LocalExecutor::Refuse(const CommandEntry& entry, const absl::Status& why) {
  Start(entry, why);
}

void LocalExecutor::Start(const CommandEntry& entry, const absl::StatusOr<LocalCommand>& command) {
  Begun& begun = begun_.emplace_back();
  begun.begin = clock_.Monotonic();
  begun.completion.kind = entry.kind;
  begun.writes_shard = WritesShard(entry);
  begun.rows_before = site_.objects.rows();
  if (TakesSequence(entry)) begun.completion.sequence = TakeSequence();
  const Sequence sequence = begun.completion.sequence;
  if (command.ok()) {
    begun.failure = std::visit([&](const auto& operation) { return Operate(operation, sequence); },
                               command->operation);
  } else {
    begun.failure = NotACommand(command.status());
  }
  // As where the data path queues: what was launched behind it may have published the target.
  if (begun.failure.record) operations_.DropTarget();
  bool goes_on = begun.failure.status.ok() && UsesDataPath(entry.kind);
  // Nothing was touched, and the others wait.
  const bool refused = !begun.failure.status.ok() && !begun.failure.record;
  if (refused && sequence.value != 0) goes_on = Decline(begun);
  begun.launched = goes_on && site_.data_path.queues();
  if (begun.launched) return;
  DropLeftMark(begun);
  begun.completion.duration = clock_.Monotonic() - begun.begin;
}

Sequence LocalExecutor::TakeSequence() {
  const Sequence sequence = next_sequence_;
  next_sequence_ = sequence.Next();
  site_.objects.UseSequence(sequence);
  // All ranks come here alike, whatever becomes of the operation: a prefetch that one refuses fills
  // the others' slots.
  site_.objects.ForgetSlots();
  begun_.back().completion.sequence = sequence;
  ShowFirstCollective();
  return sequence;
}

void LocalExecutor::ShowFirstCollective() {
  uint64_t first = 0;
  for (const Begun& begun : begun_) {
    first = begun.completion.sequence.value;
    if (first != 0) break;
  }
  in_collective_.store(first, std::memory_order_release);
}

// When the others could not be told, that is the graver failure.
bool LocalExecutor::Decline(Begun& begun) {
  const Sequence sequence = begun.completion.sequence;
  const Failure decline = operations_.Decline(sequence, begun.writes_shard);
  if (!decline.status.ok()) begun.failure = Both(decline, begun.failure);
  return decline.status.ok();
}

absl::optional<LocalCompletion> LocalExecutor::TakeEnded() {
  if (begun_.empty()) return absl::nullopt;
  if (begun_.front().launched) LookAtDevice();
  if (begun_.front().launched) return absl::nullopt;
  LocalCompletion completion = Report(std::move(begun_.front()));
  begun_.pop_front();
  ShowFirstCollective();
  return completion;
}

void LocalExecutor::LookAtDevice() {
  const Polled polled = site_.data_path.Poll();
  NoteEnded(polled.ended);
  if (polled.failed) Settle();
}

void LocalExecutor::NoteEnded(size_t count) {
  if (count == 0) return;
  const std::vector<absl::Duration> durations = site_.data_path.durations();
  size_t ended = 0;
  for (Begun& begun : begun_) {
    if (ended == count) break;
    if (!begun.launched) continue;
    begun.launched = false;
    DropLeftMark(begun);
    if (ended < durations.size()) begun.completion.duration = durations[ended];
    ++ended;
  }
}

void LocalExecutor::Settle() {
  Failure failure = operations_.Left(site_.data_path.Synchronize());
  NoteEnded(site_.data_path.operations_ended());
  if (!failure.record && failure.status.code() == absl::StatusCode::kFailedPrecondition) {
    failure.status = WithReason(failure.status, kReasonStaleWeights);
  }
  size_t first = 0;
  while (first < begun_.size() && !begun_[first].launched) ++first;
  if (first == begun_.size()) return;
  Undo(first, failure);
  UndoReleases(first);
  const Failure behind = Refused(WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "not done: the ", CommandName(static_cast<CommandKind>(begun_[first].completion.kind)),
          " ahead of it ended early: ", failure.status.message())),
      kReasonDeclined));
  for (size_t i = first; i < begun_.size(); ++i) {
    Begun& begun = begun_[i];
    if (!std::exchange(begun.launched, false)) continue;
    if (i == first) {
      begun.failure = begun.failure.status.ok() ? failure : Both(failure, begun.failure);
    } else if (begun.failure.status.ok()) {
      begun.failure = behind;
    }
  }
}

// Those behind the failed one have moved nothing.
void LocalExecutor::Undo(size_t first_failed, const Failure& failure) {
  UndoPlans(first_failed);
  std::vector<KeptSource> replaced;
  for (size_t i = first_failed; i < begun_.size(); ++i) {
    if (begun_[i].launched && begun_[i].makes_source) replaced.push_back(begun_[i].source_before);
  }
  site_.objects.KeepLivingSource(replaced);
  const Begun& failed = begun_[first_failed];
  site_.objects.RestoreRows(failed.rows_before);
  if (failed.writes_shard && failure.record) {
    site_.objects.RowsUndefined(failed.completion.sequence.value != 0
                                    ? failed.completion.sequence
                                    : site_.objects.last_sequence());
  }
  operations_.DropTarget();
}

// From the last one back, so that each finds what it had put under its number, if that is still
// there, and puts back what was there before.
void LocalExecutor::UndoPlans(size_t first_failed) {
  absl::flat_hash_set<PlanPtr> unmade;
  for (size_t i = first_failed; i < begun_.size(); ++i) {
    if (begun_[i].makes_plan && begun_[i].launched) unmade.insert(begun_[i].plan);
  }
  for (size_t i = begun_.size(); i-- > first_failed;) {
    Begun& begun = begun_[i];
    if (!unmade.contains(begun.plan)) continue;
    if (!begun.makes_plan) {
      begun.failure = Refused(StaleObject("the dispatch that was to make the plan ended early"));
    }
    const auto kept = plans_.find(begun.plan_id.value);
    if (kept == plans_.end() || kept->second != begun.plan) continue;
    if (begun.replaced == nullptr) {
      plans_.erase(kept);
    } else {
      kept->second = begun.replaced;
    }
  }
}

void LocalExecutor::Clear() {
  operations_.DropTarget();
  // Nobody reads any more.
  for (const Unread& unread : unread_) unread.word.Pass();
  unread_.clear();
  operations_.DropSlots();
  site_.objects.DropSource();
  begun_.clear();
  plans_.clear();
}

void LocalExecutor::KeepPlan(LocalPlanId id, PlanPtr plan, bool made) {
  PlanPtr& kept = plans_[id.value];
  Begun& begun = begun_.back();
  begun.plan_id = id;
  begun.makes_plan = made;
  begun.plan = plan;
  begun.replaced = std::exchange(kept, std::move(plan));
}

DispatchInput LocalExecutor::Input(int32_t token_count, bool route_weights) const {
  return DispatchInput{arena_.hidden, arena_.topk_experts,
                       route_weights ? arena_.route_weights : nullptr, token_count};
}

Failure LocalExecutor::Operate(const LocalDispatch& operation, Sequence sequence) {
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  const DispatchInput input = Input(operation.token_count, operation.route_weights);
  if (operation.slot) {
    RankOperations::SlotTaken taken = DispatchIntoSlot(sequence, input, nullptr, *operation.slot);
    if (taken.plan) KeepPlan(operation.plan, std::move(taken.plan), /*made=*/true);
    return std::move(taken.failure);
  }
  RankOperations::Dispatched dispatched = operations_.Dispatch(
      sequence, input, operation.route_weights, nullptr, {.plan = arena_.plan});
  if (!dispatched.plan) return std::move(dispatched.failure);
  KeepPlan(operation.plan, std::move(dispatched.plan), /*made=*/true);
  return Failure();
}

Failure LocalExecutor::Operate(const LocalDispatchWithPlan& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  const DispatchInput input = Input(operation.token_count, operation.route_weights);
  if (operation.slot) {
    return DispatchIntoSlot(sequence, input, *std::move(plan), *operation.slot).failure;
  }
  return operations_.Dispatch(sequence, input, operation.route_weights, *std::move(plan)).failure;
}

Failure LocalExecutor::Operate(const LocalPrefetchWeights& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  return operations_.Prefetch(sequence, *plan, operation.layer, operation.weights_version);
}

Failure LocalExecutor::Operate(const LocalRunExperts& operation, Sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  if (operation.slot) return RunExpertsOfSlot(operation, *plan);
  return operations_.RunExperts(*plan, operation.layer, operation.weights_version,
                                operation.route_weights);
}

Failure LocalExecutor::Operate(const LocalCombine& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  if (operation.slot) return CombineOfSlot(operation, sequence, *plan);
  const CombineOutput output{arena_.output,
                             operation.route_weights ? arena_.gathered_weights : nullptr};
  const BFloat16* const rows = operation.own_rows ? site_.data_path.rows() : nullptr;
  return operations_.Combine(
      sequence, *plan,
      {.rows = rows, .own_weights = operation.own_weights, .own_rows = operation.own_rows}, output);
}

Failure LocalExecutor::Operate(const LocalBarrier&, Sequence sequence) {
  return operations_.Barrier(sequence);
}

Failure LocalExecutor::Operate(const LocalReleasePlan& operation, Sequence) {
  if (plans_.erase(operation.plan.value) > 0) return Failure();
  return Refused(FindPlan(operation.plan).status());
}

Failure LocalExecutor::Operate(const LocalClonePlan& operation, Sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.source);
  if (!plan.ok()) return Refused(plan.status());
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  KeepPlan(operation.plan, *std::move(plan), /*made=*/false);
  return Failure();
}

Failure LocalExecutor::Operate(const LocalReduceGradients& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  return operations_.ReduceGradients(sequence, *plan, operation.layer);
}

absl::StatusOr<PlanPtr> LocalExecutor::FindPlan(LocalPlanId id) const {
  const auto found = plans_.find(id.value);
  if (found != plans_.end()) return found->second;
  return StaleObject(absl::StrCat("there is no plan ", id.value, " in this attachment (",
                                  plans_.size(), " others are kept)"));
}

absl::Status LocalExecutor::CheckPlanRoom(LocalPlanId id) const {
  if (plans_.size() < kMaxPlans || plans_.contains(id.value)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "plan ", id.value, " cannot be kept: this attachment has ", kMaxPlans, " already"));
}

LocalCompletion LocalExecutor::Report(Begun begun) {
  LocalCompletion completion = std::move(begun.completion);
  const Failure& failure = begun.failure;
  completion.generation = group_.generation;
  completion.rank = group_.rank.value;
  if (failure.status.ok()) {
    completion.slot = {begun.takes.index, begun.takes.identity};
    return completion;
  }
  const v1::RankStatus report = ToRankStatus(group_, failure);
  completion.status = absl::Status(static_cast<absl::StatusCode>(report.code()), report.message());
  completion.reason = report.reason();
  if (failure.record) {
    completion.phase = failure.record->phase;
    completion.awaited_rank = failure.record->awaited_rank;
    completion.token = failure.record->token;
    completion.k = failure.record->k;
    completion.expected = failure.record->expected;
    completion.seen = failure.record->seen;
  }
  if (LeavesOutOfStep(report, failure) && !fatal_) fatal_ = report;
  return completion;
}

}  // namespace perigee
