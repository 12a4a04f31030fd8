#include "worker/ops/error_report.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/ops/failure_reason.h"

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

// Where "rank 1" stands in a text, and not as the beginning of "rank 12".
size_t FindRank(const std::string& text, const std::string& rank) {
  size_t at = text.find(rank);
  while (at != std::string::npos && at + rank.size() < text.size() &&
         absl::ascii_isdigit(text[at + rank.size()])) {
    at = text.find(rank, at + rank.size());
  }
  return at;
}

void Erase(std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at != std::string::npos) text.erase(at, words.size());
}

// The data path knows ranks, people know workers.
void NameAwaitedRank(const GroupView& group, int32_t awaited, std::string& text) {
  const std::string rank = absl::StrCat("rank ", awaited);
  const std::string name = group.Describe(awaited);
  if (absl::StrContains(text, name)) {
    // The reason of the abort names it; what the data path puts before would be a second time.
    Erase(text, absl::StrCat(rank, " is lost: "));
    return;
  }
  const size_t at = FindRank(text, rank);
  if (at != std::string::npos) {
    text.replace(at, rank.size(), name);
  } else {
    absl::StrAppend(&text, "; ", rank, " is ", group.workers[awaited]);
  }
}

// "combine, sequence 12: rank 2 (workers/c) is lost: its stream broke". Says everything once.
std::string Message(const GroupView& group, const Failure& failure) {
  if (!failure.record) return std::string(failure.status.message());
  absl::string_view own_words = failure.status.message();
  absl::ConsumePrefix(&own_words, absl::StrCat("rank ", group.rank.value, ", "));
  std::string text(own_words);
  const int32_t awaited = failure.record->awaited_rank;
  if (awaited >= 0 && awaited < static_cast<int32_t>(group.workers.size())) {
    if (awaited != group.rank.value) NameAwaitedRank(group, awaited, text);
  } else if (absl::StrContains(text, ": aborted: generation ")) {
    Erase(text, "aborted: ");  // the reason says what became of the generation
  }
  return text;
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
    case Operation::kReduceGradients:
      return "reduce_gradients";
    case Operation::kCombine:
      return "combine";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kProbeCopy:
      return "probe_copy";
    case Operation::kPrepareDispatch:
      return "prepare_dispatch";
    case Operation::kPreparePublication:
      return "prepare_publication";
    case Operation::kStoreRows:
      return "store_rows";
    case Operation::kPrepareSource:
      return "prepare_source";
    case Operation::kMaterialise:
      return "materialise";
    case Operation::kPublish:
      return "publish";
    case Operation::kProduce:
      return "produce";
    case Operation::kNone:
      return "";
  }
  return absl::StrCat("operation ", operation);
}

std::string ReasonOf(const ErrorRecord& record) {
  return ReasonWord(static_cast<AbortReason>(record.reason));
}

v1::RankStatus ToRankStatus(const GroupView& group, const Failure& failure) {
  v1::RankStatus report;
  report.set_rank(group.rank.value);
  report.set_worker(group.workers[group.rank.value]);
  report.set_code(static_cast<int32_t>(failure.status.code()));
  if (failure.status.ok()) return report;
  report.set_message(Message(group, failure));
  if (failure.record) {
    report.set_reason(ReasonOf(*failure.record));
    *report.mutable_operation_error() = ToOperationError(*failure.record);
  } else {
    report.set_reason(ReasonOf(failure.status));
  }
  return report;
}

}  // namespace perigee
