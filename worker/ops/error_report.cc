#include "worker/ops/error_report.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/session/failure_reason.h"

namespace perigee {
namespace {

const char* ReasonWord(AbortReason reason) {
  switch (reason) {
    case AbortReason::kBadRoute:
      return kReasonBadRoute;
    case AbortReason::kDisagreement:
      return kReasonDisagreement;
    case AbortReason::kCancelled:
      return kReasonCancelled;
    case AbortReason::kAborted:
      return kReasonGenerationAborted;
    case AbortReason::kDeadline:
      return kReasonDeadline;
    case AbortReason::kOutOfStep:
      return kReasonOutOfStep;
    case AbortReason::kStaleWeights:
      return kReasonStaleWeights;
    case AbortReason::kDeclined:
      return kReasonDeclined;
    case AbortReason::kNone:
      break;
  }
  return kReasonInternal;
}

const char* PhaseName(uint32_t phase) {
  switch (static_cast<Phase>(phase)) {
    case Phase::kEntry:
      return "entry";
    case Phase::kExit:
      return "exit";
    case Phase::kNone:
      break;
  }
  return "";
}

v1::OperationError ToOperationError(const ErrorRecord& record) {
  v1::OperationError error;
  error.set_generation(record.generation);
  error.set_sequence(record.sequence);
  error.set_operation(WireOperationName(record.operation));
  error.set_phase(PhaseName(record.phase));
  error.set_awaited_rank(record.awaited_rank);
  error.set_token(record.token);
  error.set_k(record.k);
  error.set_expected(record.expected);
  error.set_seen(record.seen);
  return error;
}

// The data path knows ranks, people know workers.
std::string Message(const GroupView& group, const Failure& failure) {
  const int32_t awaited = failure.record ? failure.record->awaited_rank : -1;
  std::string message =
      absl::StrCat(group.Describe(group.rank.value), ": ", failure.status.message());
  const bool is_rank = awaited >= 0 && awaited < static_cast<int32_t>(group.workers.size());
  if (is_rank && awaited != group.rank.value &&
      !absl::StrContains(message, group.Describe(awaited))) {
    absl::StrAppend(&message, "; rank ", awaited, " is ", group.workers[awaited]);
  }
  return message;
}

}  // namespace

std::string WireOperationName(uint32_t operation) {
  switch (static_cast<Operation>(operation)) {
    case Operation::kDispatch:
    case Operation::kDispatchWithPlan:
      return "dispatch";
    case Operation::kPrefetchWeights:
      return "prefetch_weights";
    case Operation::kRunExperts:
      return "run_experts";
    case Operation::kCombine:
      return "combine";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kNone:
      return "";
  }
  return absl::StrCat("operation ", operation);
}

v1::RankStatus ToRankStatus(const GroupView& group, const Failure& failure) {
  v1::RankStatus report;
  report.set_rank(group.rank.value);
  report.set_worker(group.workers[group.rank.value]);
  report.set_code(static_cast<int32_t>(failure.status.code()));
  if (failure.status.ok()) return report;
  report.set_message(Message(group, failure));
  if (failure.record) {
    report.set_reason(ReasonWord(static_cast<AbortReason>(failure.record->reason)));
    *report.mutable_operation_error() = ToOperationError(*failure.record);
  } else {
    report.set_reason(ReasonOf(failure.status));
  }
  return report;
}

}  // namespace perigee
