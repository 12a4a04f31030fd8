#include "kernels/staged/staged_collective.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/rank/agreement.h"

namespace perigee {
namespace {

template <typename T>
absl::Span<const std::byte> BytesOf(const T* first, size_t count) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(first), count * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCollective>> StagedCollective::Create(
    StagedDevice& device, std::unique_ptr<PeerExchange> exchange) {
  auto memory = device.Allocate((device.shape().shards.size() + 1) * sizeof(RankWords));
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<StagedCollective>(
      new StagedCollective(device, std::move(exchange), *std::move(memory)));
}

StagedCollective::StagedCollective(StagedDevice& device, std::unique_ptr<PeerExchange> exchange,
                                   std::unique_ptr<Memory> memory)
    : device_(device),
      exchange_(std::move(exchange)),
      memory_(std::move(memory)),
      words_(device.shape().shards.size()),
      traffic_(std::make_shared<LinkTraffic>(static_cast<int32_t>(words_.size()))) {}

absl::Status StagedCollective::Begin(Sequence sequence, Operation operation) {
  Progress& progress = device_.progress();
  inside_ = false;
  if (absl::Status status = progress.Begin(sequence, operation); !status.ok()) return status;
  deadline_ = absl::Now() + progress.timeout();
  if (!progress.skips()) return absl::OkStatus();
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(operation);
  // Whether or not they hear of it: this rank is out of step.
  static_cast<void>(EnterAlone(descriptor, 0, {}));
  return progress.Skipped();
}

absl::Status StagedCollective::BeginLocal(Operation operation) {
  inside_ = false;
  deadline_ = absl::Now() + device_.progress().timeout();
  return device_.progress().BeginLocal(operation);
}

absl::Status StagedCollective::Enter(const OperationDescriptor& descriptor, uint32_t flags,
                                     const RankWords& said) {
  device_.progress().ReachEntry();
  inside_ = true;
  if (absl::Status status = EnterAlone(descriptor, flags, said); !status.ok()) return status;
  std::vector<RankEntry> entries;
  for (const RankWords& words : words_) {
    entries.push_back({words.record, words.statement, words.planning});
  }
  const Decision decision = Decide(device_.progress().sequence().value, entries);
  return decision.reason == AbortReason::kNone ? absl::OkStatus()
                                               : device_.progress().Left(decision);
}

absl::Status StagedCollective::EnterAlone(const OperationDescriptor& descriptor, uint32_t flags,
                                          const RankWords& said) {
  const RankShape& shape = device_.shape();
  const Sequence sequence = device_.progress().sequence();
  if (cancel_wanted_.load(std::memory_order_relaxed)) flags |= kEntryCancelWanted;
  RankWords& own = words_[shape.rank.value];
  own = said;
  own.statement.tag = shape.TagOf(sequence);
  own.statement.descriptor = descriptor;
  own.record.sequence = sequence.value;
  own.record.statement_hash = HashStatement(own.statement);
  own.record.flags = flags;
  // Where a later data path looks whether the shard has been used (CheckFreshShard).
  const uint64_t position = BarrierPosition(sequence.value, Phase::kEntry);
  uint64_t* arrival = &shape.own().control->peers[shape.rank.value].arrival;
  absl::Status status = device_.Write(reinterpret_cast<std::byte*>(arrival), BytesOf(&position, 1));
  if (status.ok()) status = device_.progress().CheckNotAborted();
  if (status.ok()) status = SendWords();
  if (status.ok()) entered_ = sequence.value;
  return status;
}

absl::Status StagedCollective::SendWords() {
  const int32_t rank = device_.shape().rank.value;
  const auto ranks = static_cast<int32_t>(words_.size());
  const RankWords own = words_[rank];
  // What does not come must not look like what came before.
  words_.assign(ranks, RankWords());
  words_[rank] = own;
  absl::Status status = device_.Write(PlaceOf(0), BytesOf(words_.data(), words_.size()));
  if (status.ok()) status = device_.Write(PlaceOf(ranks), BytesOf(&own, 1));
  if (!status.ok()) return status;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int32_t peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    outgoing.push_back({peer, PlaceOf(ranks), sizeof(RankWords)});
    incoming.push_back({peer, PlaceOf(peer), sizeof(RankWords)});
  }
  status = Send(outgoing, incoming);
  return status.ok() ? ReadWords() : status;
}

absl::Status StagedCollective::ReadWords() {
  auto* bytes = reinterpret_cast<std::byte*>(words_.data());
  return device_.Read(absl::MakeSpan(bytes, words_.size() * sizeof(RankWords)), PlaceOf(0));
}

absl::Status StagedCollective::Transfer(std::vector<Outgoing> outgoing,
                                        std::vector<Incoming> incoming) {
  device_.progress().ReachExit();
  const auto is_empty = [](const auto& transfer) { return transfer.size_bytes == 0; };
  std::erase_if(outgoing, is_empty);
  std::erase_if(incoming, is_empty);
  return Send(outgoing, incoming);
}

absl::Status StagedCollective::Renew(const HomeHeader& home) {
  device_.progress().ReachExit();
  words_[device_.shape().rank.value].home = home;
  return SendWords();
}

absl::Status StagedCollective::Decline(Sequence sequence) {
  if (absl::Status status = Begin(sequence, Operation::kNone); !status.ok()) return status;
  device_.progress().ReachEntry();
  inside_ = true;
  return EnterAlone(OperationDescriptor(), kEntryDeclined, {});
}

absl::Status StagedCollective::Send(absl::Span<const Outgoing> outgoing,
                                    absl::Span<const Incoming> incoming) {
  if (outgoing.empty() && incoming.empty()) return device_.progress().CheckNotAborted();
  const absl::Status status = exchange_->Transfer(outgoing, incoming, [this] {
    if (device_.progress().aborted()) return absl::UnavailableError("aborted");
    return absl::Now() < deadline_ ? absl::OkStatus() : absl::DeadlineExceededError("too late");
  });
  if (!status.ok()) return Failed(status);
  const int32_t rank = device_.shape().rank.value;
  for (const Outgoing& transfer : outgoing) {
    if (transfer.to != rank) traffic_->Sent(transfer.to, transfer.size_bytes);
  }
  return status;
}

absl::Status StagedCollective::Failed(const absl::Status& status) {
  Progress& progress = device_.progress();
  if (progress.aborted()) return progress.Aborted();
  ErrorRecord record;
  if (absl::IsDeadlineExceeded(status)) {
    if (exchange_->joined() && entered_ != progress.sequence().value) return MissingAtEntry();
    record.reason = static_cast<uint32_t>(AbortReason::kDeadline);
    const char* missed = exchange_->joined() ? "what the ranks send has not all come within "
                                             : "the ranks have not found each other within ";
    return progress.Fail(record, absl::StrCat(missed, absl::FormatDuration(progress.timeout())));
  }
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  return progress.Fail(record, std::string(status.message()));
}

// The lowest rank whose words have not come. It has been at the entry before this one, at least.
absl::Status StagedCollective::MissingAtEntry() {
  if (absl::Status status = ReadWords(); !status.ok()) return status;
  int32_t missing = 0;
  while (missing + 1 < static_cast<int32_t>(words_.size()) &&
         words_[missing].record.sequence != 0) {
    ++missing;
  }
  const uint64_t seen = entered_ == 0 ? 0 : BarrierPosition(entered_, Phase::kEntry);
  return device_.progress().WaitFailed(AbortReason::kDeadline, missing, seen);
}

}  // namespace perigee
