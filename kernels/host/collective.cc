#include "kernels/host/collective.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/host/operation_status.h"
#include "kernels/host/shared_words.h"

namespace perigee {
namespace {

RankBarrierOptions BarrierOptions(const CollectiveOptions& options) {
  RankBarrierOptions barrier;
  barrier.rank = options.rank;
  for (const ShardView& shard : options.shards) barrier.pages.push_back(shard.control);
  barrier.clock = options.clock;
  barrier.wait_slice = options.wait_slice;
  barrier.spin = options.spin;
  return barrier;
}

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

Collective::Collective(CollectiveOptions options)
    : options_(std::move(options)), barrier_(BarrierOptions(options_)) {}

absl::Status Collective::Begin(Sequence sequence, Operation operation) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_error_.reset();
  }
  if (sequence <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence.value, " is not after ",
                                                   last_sequence_.value, ", the last that rank ",
                                                   options_.rank.value, " has entered"));
  }
  current_ = {sequence, operation, Phase::kNone, barrier_.now() + options_.operation_timeout};
  if (absl::Status status = CheckNotAborted(); !status.ok()) return status;
  if (!broken_.empty()) return Fail(RecordOf(AbortReason::kAborted, -1), broken_);
  if (sequence != last_sequence_.Next()) return Skipped(sequence, operation);
  return absl::OkStatus();
}

// Tells the others where this rank is, so that they need not wait for it until their deadlines.
absl::Status Collective::Skipped(Sequence sequence, Operation operation) {
  const Sequence expected = last_sequence_.Next();
  current_.phase = Phase::kEntry;
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(operation);
  Publish(descriptor, 0);
  last_sequence_ = sequence;
  barrier_.Arrive(BarrierPosition(sequence.value, Phase::kEntry));
  ErrorRecord record = RecordOf(AbortReason::kOutOfStep, options_.rank.value);
  record.expected = static_cast<int64_t>(BarrierPosition(expected.value, Phase::kEntry));
  record.seen = static_cast<int64_t>(BarrierPosition(sequence.value, Phase::kEntry));
  return Fail(record, absl::StrCat("rank ", options_.rank.value, " was called with sequence ",
                                   sequence.value, ", expected ", expected.value));
}

absl::Status Collective::BeginLocal(Operation operation) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_error_.reset();
  }
  current_ = {last_sequence_, operation, Phase::kNone, absl::InfiniteDuration()};
  return CheckNotAborted();
}

absl::Status Collective::CheckNotAborted() {
  return barrier_.aborted() ? AbortedError() : absl::OkStatus();
}

void Collective::Publish(const OperationDescriptor& descriptor, uint32_t flags) {
  const uint64_t sequence = current_.sequence.value;
  const int parity = static_cast<int>(sequence & 1);
  Statement statement;
  statement.tag = {options_.buffer, options_.generation, current_.sequence};
  statement.descriptor = descriptor;
  EntryRecord record;
  record.sequence = sequence;
  record.statement_hash = HashStatement(statement);
  record.flags = flags;
  StoreShared(options_.shards[options_.rank.value].control->statement[parity], statement);
  for (const ShardView& shard : options_.shards) {
    StoreShared(shard.control->peers[options_.rank.value].entry[parity], record);
  }
}

std::vector<RankEntry> Collective::ReadEntries() {
  const int parity = static_cast<int>(current_.sequence.value & 1);
  std::vector<RankEntry> entries(options_.shards.size());
  bool bad_route = false;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    PeerWords& words = options_.shards[options_.rank.value].control->peers[rank];
    entries[rank].record = LoadShared(words.entry[parity]);
    bad_route |= (entries[rank].record.flags & kEntryBadRoute) != 0;
  }
  if (SameStatements(entries) && !bad_route) return entries;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const ShardView& shard = options_.shards[rank];
    entries[rank].statement = LoadShared(shard.control->statement[parity]);
    // Its place depends on no geometry, so it can be read even where geometries differ.
    entries[rank].planning = LoadShared(shard.planning[parity]);
  }
  return entries;
}

absl::Status Collective::EnterBarrier(const OperationDescriptor& descriptor, uint32_t flags) {
  if (cancel_wanted_.load(std::memory_order_relaxed)) flags |= kEntryCancelWanted;
  current_.phase = Phase::kEntry;
  Publish(descriptor, flags);
  last_sequence_ = current_.sequence;
  return Wait(Phase::kEntry);
}

absl::Status Collective::Enter(const OperationDescriptor& descriptor, uint32_t flags) {
  if (absl::Status status = EnterBarrier(descriptor, flags); !status.ok()) return status;
  const Decision decision = Decide(current_.sequence.value, ReadEntries());
  if (decision.reason == AbortReason::kNone) return absl::OkStatus();
  ErrorRecord record = RecordOf(decision.reason, decision.rank);
  record.token = decision.token;
  record.k = decision.k;
  record.expected = decision.expected;
  record.seen = decision.seen;
  return Fail(record, decision.text);
}

absl::Status Collective::Exit() {
  current_.phase = Phase::kExit;
  return Wait(Phase::kExit);
}

absl::Status Collective::Decline(Sequence sequence) {
  if (absl::Status status = Begin(sequence, Operation::kNone); !status.ok()) return status;
  return EnterBarrier(OperationDescriptor(), kEntryDeclined);
}

absl::Status Collective::Wait(Phase phase) {
  const uint64_t position = BarrierPosition(current_.sequence.value, phase);
  // An aborted rank may have stopped in the middle of its part: it must not say that it is done.
  if (absl::Status status = CheckNotAborted(); !status.ok()) return status;
  barrier_.Arrive(position);
  const WaitOutcome outcome = barrier_.Wait(position, current_.deadline);
  return outcome.reason == AbortReason::kNone ? absl::OkStatus() : WaitFailed(outcome);
}

absl::Status Collective::WaitFailed(const WaitOutcome& outcome) {
  if (outcome.reason == AbortReason::kAborted) return AbortedError();
  const uint64_t awaited = BarrierPosition(current_.sequence.value, current_.phase);
  ErrorRecord record = RecordOf(outcome.reason, outcome.rank);
  record.expected = static_cast<int64_t>(awaited);
  record.seen = static_cast<int64_t>(outcome.seen);
  if (outcome.reason == AbortReason::kDeadline) {
    return Fail(record, absl::StrCat("rank ", outcome.rank, " did not arrive within ",
                                     absl::FormatDuration(options_.operation_timeout), "; it is ",
                                     DescribePosition(outcome.seen)));
  }
  return Fail(record, absl::StrCat("rank ", outcome.rank, " is out of step: it is ",
                                   DescribePosition(outcome.seen), " while this rank is ",
                                   DescribePosition(awaited)));
}

absl::Status Collective::Fail(ErrorRecord record, const std::string& text) {
  record.generation = options_.generation.value;
  record.sequence = current_.sequence.value;
  record.operation = static_cast<uint32_t>(current_.operation);
  record.phase = static_cast<uint32_t>(current_.phase);
  record.rank = options_.rank.value;
  const auto reason = static_cast<AbortReason>(record.reason);
  const absl::Status status = OperationStatus(record, text);
  const bool goes_on = AllRanksLeave(reason) || reason == AbortReason::kStaleWeights;
  if (!goes_on && broken_.empty()) {
    broken_ = absl::StrCat("no operation can follow in this generation after: ",
                           std::string(status.message()));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = record;
  return status;
}

void Collective::Abort(int32_t lost_rank, const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The first abort is the cause; what follows it are its consequences.
    if (!abort_text_.empty()) return;
    lost_rank_ = lost_rank;
    abort_text_ = lost_rank >= 0 ? absl::StrCat("rank ", lost_rank, " is lost: ", reason)
                                 : absl::StrCat("aborted: ", reason);
  }
  barrier_.Abort();
}

absl::Status Collective::AbortedError() {
  int32_t lost_rank = -1;
  std::string text;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lost_rank = lost_rank_;
    text = abort_text_;
  }
  return Fail(RecordOf(AbortReason::kAborted, lost_rank), text);
}

absl::optional<ErrorRecord> Collective::last_error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

}  // namespace perigee
