#include "kernels/rank/progress.h"

#include "absl/strings/str_cat.h"
#include "kernels/layout/control_page.h"
#include "kernels/rank/operation_status.h"

namespace perigee {
namespace {

ErrorRecord RecordOf(AbortReason reason, int32_t awaited_rank) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(reason);
  record.awaited_rank = awaited_rank;
  return record;
}

std::string DescribePosition(uint64_t position) {
  if (position == 0) return "before its first operation";
  const bool entry = position == BarrierPosition(PositionSequence(position), Phase::kEntry);
  return absl::StrCat("at the ", entry ? "entry" : "exit", " of sequence ",
                      PositionSequence(position));
}

}  // namespace

void Progress::Forget() {
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_.reset();
}

absl::Status Progress::Begin(Sequence sequence, Operation operation) {
  Forget();
  if (sequence <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence.value, " is not after ",
                                                   last_sequence_.value, ", the last that rank ",
                                                   options_.rank.value, " has entered"));
  }
  current_ = {sequence, operation, Phase::kNone};
  if (absl::Status status = CheckNotAborted(); !status.ok()) return status;
  if (!broken_.empty()) return Fail(RecordOf(AbortReason::kAborted, -1), broken_);
  return absl::OkStatus();
}

absl::Status Progress::BeginLocal(Operation operation) {
  Forget();
  current_ = {last_sequence_, operation, Phase::kNone};
  return CheckNotAborted();
}

void Progress::ReachEntry() {
  current_.phase = Phase::kEntry;
  if (first_sequence_ == Sequence()) first_sequence_ = current_.sequence;
  last_sequence_ = current_.sequence;
}

absl::Duration Progress::timeout() const {
  const bool warms_up = first_sequence_ == Sequence() || current_.sequence == first_sequence_;
  return warms_up && options_.warmup_timeout > absl::ZeroDuration() ? options_.warmup_timeout
                                                                    : options_.operation_timeout;
}

void Progress::Resume(Sequence sequence, Operation operation, Phase phase) {
  current_ = {sequence, operation, phase};
}

absl::Status Progress::Fail(ErrorRecord record, const std::string& text) {
  record.generation = options_.generation.value;
  record.sequence = current_.sequence.value;
  record.operation = static_cast<uint32_t>(current_.operation);
  record.phase = static_cast<uint32_t>(current_.phase);
  record.rank = options_.rank.value;
  const auto reason = static_cast<AbortReason>(record.reason);
  absl::Status status = OperationStatus(record, text);
  const bool goes_on = AllRanksLeave(reason) || reason == AbortReason::kStaleWeights;
  if (!goes_on && broken_.empty()) {
    broken_ = absl::StrCat("no operation can follow in this generation after: ",
                           std::string(status.message()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = record;
  return status;
}

absl::Status Progress::Skipped() {
  ErrorRecord record = RecordOf(AbortReason::kOutOfStep, options_.rank.value);
  const Sequence expected = last_sequence_.Next();
  record.expected = static_cast<int64_t>(BarrierPosition(expected.value, Phase::kEntry));
  record.seen = static_cast<int64_t>(BarrierPosition(current_.sequence.value, Phase::kEntry));
  const std::string text = absl::StrCat("rank ", options_.rank.value, " was called with sequence ",
                                        current_.sequence.value, ", expected ", expected.value);
  ReachEntry();
  return Fail(record, text);
}

absl::Status Progress::Left(const Decision& decision) {
  ErrorRecord record = RecordOf(decision.reason, decision.rank);
  record.token = decision.token;
  record.k = decision.k;
  record.expected = decision.expected;
  record.seen = decision.seen;
  return Fail(record, decision.text);
}

absl::Status Progress::WaitFailed(AbortReason reason, int32_t awaited_rank, uint64_t seen) {
  const uint64_t awaited = BarrierPosition(current_.sequence.value, current_.phase);
  ErrorRecord record = RecordOf(reason, awaited_rank);
  record.expected = static_cast<int64_t>(awaited);
  record.seen = static_cast<int64_t>(seen);
  if (reason == AbortReason::kDeadline) {
    return Fail(record,
                absl::StrCat("rank ", awaited_rank, " did not arrive within ",
                             absl::FormatDuration(timeout()), "; it is ", DescribePosition(seen)));
  }
  return Fail(record,
              absl::StrCat("rank ", awaited_rank, " is out of step: it is ", DescribePosition(seen),
                           " while this rank is ", DescribePosition(awaited)));
}

absl::Status Progress::Aborted() {
  int32_t lost_rank = -1;
  std::string text;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lost_rank = lost_rank_;
    text = abort_text_;
  }
  return Fail(RecordOf(AbortReason::kAborted, lost_rank), text);
}

void Progress::Abort(int32_t lost_rank, const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The first abort is the cause; what follows it are its consequences.
    if (!abort_text_.empty()) return;
    lost_rank_ = lost_rank;
    abort_text_ = lost_rank >= 0 ? absl::StrCat("rank ", lost_rank, " is lost: ", reason)
                                 : absl::StrCat("aborted: ", reason);
  }
  aborted_.store(true, std::memory_order_seq_cst);
}

absl::optional<ErrorRecord> Progress::last_error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

}  // namespace perigee
