#include "kernels/host/collective.h"

#include <atomic>
#include <utility>

#include "absl/time/time.h"
#include "kernels/common/futex.h"
#include "kernels/common/shared_words.h"

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

}  // namespace

Collective::Collective(CollectiveOptions options)
    : options_(std::move(options)),
      barrier_(BarrierOptions(options_)),
      progress_({options_.rank, options_.generation, options_.operation_timeout,
                 options_.warmup_timeout}) {}

absl::Status Collective::Begin(Sequence sequence, Operation operation) {
  if (absl::Status status = progress_.Begin(sequence, operation); !status.ok()) return status;
  deadline_ = barrier_.now() + progress_.timeout();
  return progress_.skips() ? Skipped(operation) : absl::OkStatus();
}

// Tells the others where this rank is, so that they need not wait for it until their deadlines.
absl::Status Collective::Skipped(Operation operation) {
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(operation);
  Publish(descriptor, 0);
  barrier_.Arrive(BarrierPosition(progress_.sequence().value, Phase::kEntry));
  return progress_.Skipped();
}

void Collective::Publish(const OperationDescriptor& descriptor, uint32_t flags) {
  const uint64_t sequence = progress_.sequence().value;
  const int parity = static_cast<int>(sequence & 1);
  Statement statement;
  statement.tag = {options_.buffer, options_.generation, progress_.sequence()};
  statement.descriptor = descriptor;
  EntryRecord record;
  record.sequence = sequence;
  record.statement_hash = HashStatement(statement);
  record.flags = flags;
  record.slot = credit_.slot;
  StoreShared(options_.shards[options_.rank.value].control->statement[parity], statement);
  for (const ShardView& shard : options_.shards) {
    StoreShared(shard.control->peers[options_.rank.value].entry[parity], record);
  }
}

std::vector<RankEntry> Collective::ReadEntries() {
  const int parity = static_cast<int>(progress_.sequence().value & 1);
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
  const bool waits = credit_.slot != 0 && (flags & kEntryDeclined) == 0;
  if (waits && !AwaitCredit()) flags |= kEntryNoCredit;
  Publish(descriptor, flags);
  progress_.ReachEntry();
  return Wait(Phase::kEntry);
}

absl::Status Collective::Enter(const OperationDescriptor& descriptor, uint32_t flags) {
  if (absl::Status status = EnterBarrier(descriptor, flags); !status.ok()) return status;
  const Decision decision = Decide(progress_.sequence().value, ReadEntries());
  if (decision.reason != AbortReason::kNone) return progress_.Left(decision);
  if (credit_.slot != 0) {
    std::atomic_ref<uint64_t>(*credit_.word).store(0, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

bool Collective::AwaitCredit() const {
  const std::atomic_ref<uint64_t> word(*credit_.word);
  const absl::Duration limit = deadline_ - progress_.timeout() / 2;
  while (word.load(std::memory_order_acquire) == 0) {
    if (aborted() || barrier_.now() >= limit) return false;
    FutexWait(*reinterpret_cast<uint32_t*>(credit_.word), 0,
              absl::ToChronoNanoseconds(options_.wait_slice));
  }
  return true;
}

absl::Status Collective::Exit() {
  progress_.ReachExit();
  return Wait(Phase::kExit);
}

absl::Status Collective::Decline(Sequence sequence) {
  if (absl::Status status = Begin(sequence, Operation::kNone); !status.ok()) return status;
  return EnterBarrier(OperationDescriptor(), kEntryDeclined);
}

absl::Status Collective::Wait(Phase phase) {
  const uint64_t position = BarrierPosition(progress_.sequence().value, phase);
  // An aborted rank may have stopped in the middle of its part: it must not say that it is done.
  if (absl::Status status = CheckNotAborted(); !status.ok()) return status;
  barrier_.Arrive(position);
  const WaitOutcome outcome = barrier_.Wait(position, deadline_);
  if (outcome.reason == AbortReason::kNone) return absl::OkStatus();
  if (outcome.reason == AbortReason::kAborted) return progress_.Aborted();
  return progress_.WaitFailed(outcome.reason, outcome.rank, outcome.seen);
}

void Collective::Abort(int32_t lost_rank, const std::string& reason) {
  progress_.Abort(lost_rank, reason);
  barrier_.Abort();
}

}  // namespace perigee
