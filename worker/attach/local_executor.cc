#include "worker/attach/local_executor.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

// What a client is told about an entry that says what no command says.
Failure NotACommand(const absl::Status& status) {
  return Refused(WithReason(
      status, absl::IsInvalidArgument(status) ? kReasonInvalidProgram : kReasonStaleObject));
}

bool WritesShard(CommandKind kind) {
  return kind == CommandKind::kDispatch || kind == CommandKind::kDispatchWithPlan ||
         kind == CommandKind::kCombine;
}

// Whether the ranks are at different places after it.
bool LeavesOutOfStep(const v1::RankStatus& status) {
  return status.reason() == kReasonDeadline || status.reason() == kReasonOutOfStep ||
         status.reason() == kReasonGenerationAborted;
}

void CopyTo(int32_t* to, const std::vector<int32_t>& from) {
  std::copy(from.begin(), from.end(), to);
}

}  // namespace

LocalExecutor::LocalExecutor(const GroupView& group, const ProgramSite& site,
                             const ClientArenaView& arena, Sequence first_sequence,
                             const Clock& clock)
    : group_(group),
      site_(site),
      arena_(arena),
      clock_(clock),
      operations_(site),
      next_sequence_(first_sequence) {
  plans_.reserve(kMaxPlans);
}

LocalCompletion LocalExecutor::Execute(const CommandEntry& entry) {
  const absl::Duration begin = clock_.Monotonic();
  const CommandLimits limits{group_.generation, next_sequence_, site_.shape.geometry.tokens,
                             site_.shape.layers};
  const absl::StatusOr<LocalCommand> command = DecodeCommand(entry, limits);
  const Sequence sequence = TakesSequence(entry) ? TakeSequence() : Sequence();
  Failure failure;
  if (command.ok()) {
    failure = std::visit([&](const auto& operation) { return Operate(operation, sequence); },
                         command->operation);
  } else {
    failure = NotACommand(command.status());
  }
  const bool refused = !failure.status.ok() && !failure.record;
  if (refused && sequence.value != 0) {
    // Nothing was touched, and the others wait.
    failure =
        Declined(std::move(failure), sequence, WritesShard(static_cast<CommandKind>(entry.kind)));
  }
  in_collective_.store(0, std::memory_order_release);
  LocalCompletion completion = Report(failure);
  completion.kind = entry.kind;
  completion.sequence = sequence;
  completion.duration = clock_.Monotonic() - begin;
  return completion;
}

Sequence LocalExecutor::TakeSequence() {
  const Sequence sequence = next_sequence_;
  next_sequence_ = sequence.Next();
  site_.objects.UseSequence(sequence);
  in_collective_.store(sequence.value, std::memory_order_release);
  return sequence;
}

// When the others could not be told, that is the graver failure.
Failure LocalExecutor::Declined(Failure failure, Sequence sequence, bool writes_shard) {
  const Failure decline = operations_.Decline(sequence, writes_shard);
  if (decline.status.ok()) return failure;
  const std::string message =
      absl::StrCat(decline.status.message(),
                   "; this rank had refused the operation: ", failure.status.message());
  return Failure{absl::Status(decline.status.code(), message), decline.record};
}

DispatchInput LocalExecutor::Input(int32_t token_count, bool route_weights) const {
  return DispatchInput{arena_.hidden, arena_.topk_experts,
                       route_weights ? arena_.route_weights : nullptr, token_count};
}

Failure LocalExecutor::Operate(const LocalDispatch& operation, Sequence sequence) {
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  RankOperations::Dispatched dispatched =
      operations_.Dispatch(sequence, Input(operation.token_count, operation.route_weights),
                           operation.route_weights, nullptr);
  if (!dispatched.plan) return std::move(dispatched.failure);
  ShowPlan(dispatched.plan);
  plans_[operation.plan.value] = std::move(dispatched.plan);
  return Failure();
}

Failure LocalExecutor::Operate(const LocalDispatchWithPlan& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  return operations_
      .Dispatch(sequence, Input(operation.token_count, operation.route_weights),
                operation.route_weights, *std::move(plan))
      .failure;
}

Failure LocalExecutor::Operate(const LocalPrefetchWeights& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  return operations_.Prefetch(sequence, *plan, operation.layer, operation.weights_version);
}

Failure LocalExecutor::Operate(const LocalRunExperts& operation, Sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  return operations_.RunExperts(*plan, operation.layer, operation.weights_version,
                                operation.route_weights);
}

Failure LocalExecutor::Operate(const LocalCombine& operation, Sequence sequence) {
  absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  const CombineOutput output{arena_.output,
                             operation.route_weights ? arena_.gathered_weights : nullptr};
  return operations_.Combine(sequence, *plan, output);
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
  plans_[operation.plan.value] = *std::move(plan);
  return Failure();
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

void LocalExecutor::ShowPlan(const PlanPtr& plan) {
  *arena_.plan.sequence = 0;
  const absl::StatusOr<PlanTensors> tensors = site_.data_path.ReadPlan(plan);
  if (!tensors.ok()) return;
  CopyTo(arena_.plan.dst, tensors->dst);
  CopyTo(arena_.plan.cu_seqlens, tensors->cu_seqlens);
  CopyTo(arena_.plan.zero_fill_ranges, tensors->zero_fill_ranges);
  CopyTo(arena_.plan.experts_to_copy, tensors->experts_to_copy);
  CopyTo(arena_.plan.load, tensors->load);
  CopyTo(arena_.plan.home_load, tensors->home_load);
  *arena_.plan.sequence = plan->tag().sequence.value;
}

LocalCompletion LocalExecutor::Report(const Failure& failure) {
  LocalCompletion completion;
  completion.generation = group_.generation;
  completion.rank = group_.rank.value;
  if (failure.status.ok()) return completion;
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
  if (LeavesOutOfStep(report) && !fatal_) fatal_ = report;
  return completion;
}

}  // namespace perigee
