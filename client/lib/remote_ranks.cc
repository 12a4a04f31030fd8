#include "client/lib/remote_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/lib/command_queue.h"
#include "client/lib/remote_plans.h"
#include "client/lib/remote_round.h"
#include "client/lib/remote_steps.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

constexpr size_t kArenaGranularityBytes = 256;

// What the ranks share. Its thread takes the ranks' commands together.
class RemoteGroup {
 public:
  RemoteGroup(Client& client, const v1::Group& group, const v1::Buffer& buffer,
              const Geometry& geometry, const RemoteRanksOptions& options);
  ~RemoteGroup();

  const Geometry& geometry() const { return geometry_; }
  int32_t hidden() const { return hidden_; }
  Generation generation() const { return generation_; }
  const ClientArenaView& arena(RankId rank) const { return arenas_[rank.value]; }

  absl::StatusOr<uint64_t> SubmitProgram(RankId rank, absl::Span<const LocalOperation> operations);
  absl::StatusOr<LocalCompletion> Wait(RankId rank, uint64_t command, absl::Duration timeout);
  absl::optional<LocalCompletion> End(RankId rank);

 private:
  void Serve();
  // What follows is called with mutex_ held.
  void DoBookkeeping();
  bool AllSubmitted() const;
  // When the first that waits has waited for too long; infinite: nobody waits.
  absl::Duration Due() const;
  void TellMissing();
  void RunRound(std::unique_lock<std::mutex>& lock);
  void Finish(RankId rank, LocalCompletion completion);
  void EndAll(std::vector<LocalCompletion> why);

  const Geometry geometry_;
  const int32_t hidden_;
  const Generation generation_;
  const RemoteRanksOptions options_;
  std::vector<std::vector<std::byte>> memory_;  // [R]
  std::vector<ClientArenaView> arenas_;         // [R]
  std::stop_source stop_;
  RemoteSteps steps_;  // of the thread
  RemotePlans plans_;  // of the thread

  std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable completed_;
  bool stopping_ = false;              // guarded by mutex_, as all below
  std::vector<CommandQueue> queues_;   // [R]
  std::vector<absl::Duration> since_;  // [R] that its head has been one
  std::thread thread_;
};

RemoteGroup::RemoteGroup(Client& client, const v1::Group& group, const v1::Buffer& buffer,
                         const Geometry& geometry, const RemoteRanksOptions& options)
    : geometry_(geometry),
      hidden_(buffer.shape().hidden()),
      generation_(group.generation()),
      options_(options),
      steps_(client, group, buffer.name(), geometry, hidden_, stop_.get_token()),
      plans_(geometry.ranks),
      queues_(geometry.ranks),
      since_(geometry.ranks) {
  const ClientArenaLayout layout =
      ClientArenaLayout::Create(geometry, hidden_, kArenaGranularityBytes);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    memory_.emplace_back(layout.size_bytes);
    arenas_.push_back(layout.View(memory_.back().data()));
  }
  thread_ = std::thread([this] { Serve(); });
}

RemoteGroup::~RemoteGroup() {
  stop_.request_stop();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_all();
  thread_.join();
}

absl::StatusOr<uint64_t> RemoteGroup::SubmitProgram(RankId rank,
                                                    absl::Span<const LocalOperation> operations) {
  std::lock_guard<std::mutex> lock(mutex_);
  CommandQueue& queue = queues_[rank.value];
  if (queue.head() == nullptr) since_[rank.value] = options_.clock->Monotonic();
  absl::StatusOr<uint64_t> command = queue.SubmitProgram(operations);
  submitted_.notify_all();
  return command;
}

absl::StatusOr<LocalCompletion> RemoteGroup::Wait(RankId rank, uint64_t command,
                                                  absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  absl::StatusOr<absl::optional<LocalCompletion>> found = absl::optional<LocalCompletion>();
  const absl::Duration longest = std::min(timeout, absl::Hours(24));  // a count of nanoseconds
  const bool known = completed_.wait_for(lock, absl::ToChronoNanoseconds(longest), [&] {
    found = queues_[rank.value].Find(command);
    return !found.ok() || found->has_value();
  });
  if (!known) {
    return absl::DeadlineExceededError(absl::StrCat(
        "command ", command, " is still under way after ", absl::FormatDuration(timeout)));
  }
  if (!found.ok()) return found.status();
  return **std::move(found);
}

absl::optional<LocalCompletion> RemoteGroup::End(RankId rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  return queues_[rank.value].end();
}

void RemoteGroup::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    DoBookkeeping();
    const absl::Duration left = Due() - options_.clock->Monotonic();
    if (AllSubmitted()) {
      RunRound(lock);
    } else if (left <= absl::ZeroDuration()) {
      TellMissing();
    } else if (left == absl::InfiniteDuration()) {
      submitted_.wait(lock);
    } else {
      submitted_.wait_for(lock, absl::ToChronoNanoseconds(left));
    }
  }
}

void RemoteGroup::DoBookkeeping() {
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    const CommandQueue& queue = queues_[rank];
    while (queue.head() != nullptr && IsBookkeeping(*queue.head())) {
      Finish(RankId(rank), KeepBooks(*queue.head(), RankId(rank), plans_));
    }
  }
}

bool RemoteGroup::AllSubmitted() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const CommandQueue& queue) { return queue.head() != nullptr; });
}

absl::Duration RemoteGroup::Due() const {
  absl::Duration due = absl::InfiniteDuration();
  for (size_t rank = 0; rank < queues_.size(); ++rank) {
    if (queues_[rank].head() != nullptr) due = std::min(due, since_[rank] + options_.rank_timeout);
  }
  return due;
}

void RemoteGroup::TellMissing() {
  int32_t missing = 0, waiting = 0;
  while (queues_[missing].head() != nullptr) ++missing;
  while (queues_[waiting].head() == nullptr) ++waiting;
  LocalCompletion why =
      Refusal(absl::DeadlineExceededError(
                  absl::StrCat("rank ", missing, " has submitted nothing within ",
                               absl::FormatDuration(options_.rank_timeout), ", and rank ", waiting,
                               " waits with ", CommandName(KindOf(*queues_[waiting].head())))),
              "DEADLINE");
  why.awaited_rank = missing;
  EndAll(std::vector<LocalCompletion>(queues_.size(), why));
}

void RemoteGroup::RunRound(std::unique_lock<std::mutex>& lock) {
  std::vector<LocalOperation> operations;
  for (const CommandQueue& queue : queues_) operations.push_back(*queue.head());
  RemoteRound round = DecideRound(operations, geometry_.tokens, plans_);
  RemoteSteps::Outcome outcome;
  if (round.operation) {
    lock.unlock();
    outcome = steps_.Run(round, arenas_);
    lock.lock();
    if (outcome.ran) NoteOutcome(round, operations, outcome.ranks, plans_);
  }
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    if (round.operation) {
      Finish(RankId(rank), outcome.ranks[rank]);
    } else if (round.told[rank]) {
      Finish(RankId(rank), *std::move(round.told[rank]));
    }
  }
  if (outcome.over) EndAll(std::move(outcome.ranks));
}

void RemoteGroup::Finish(RankId rank, LocalCompletion completion) {
  completion.rank = rank.value;
  completion.generation = generation_;
  queues_[rank.value].Complete(std::move(completion));
  since_[rank.value] = options_.clock->Monotonic();
  completed_.notify_all();
}

void RemoteGroup::EndAll(std::vector<LocalCompletion> why) {
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    LocalCompletion& end = why[rank];
    if (end.status.ok()) end.status = absl::UnavailableError("the group's other ranks have failed");
    end.rank = rank;
    end.generation = generation_;
    queues_[rank].End(std::move(end));
  }
  completed_.notify_all();
}

class RemoteRank final : public RankClient {
 public:
  RemoteRank(std::shared_ptr<RemoteGroup> group, RankId rank)
      : group_(std::move(group)), rank_(rank) {}

  const Geometry& geometry() const override { return group_->geometry(); }
  int32_t hidden_size() const override { return group_->hidden(); }
  RankId rank() const override { return rank_; }
  Generation generation() const override { return group_->generation(); }
  RankMemory memory() const override {
    return ArenaMemory(geometry(), hidden_size(), group_->arena(rank_));
  }

  absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations) override {
    if (detached_) return Detached();
    return group_->SubmitProgram(rank_, operations);
  }
  absl::StatusOr<LocalCompletion> Wait(uint64_t command, absl::Duration timeout) override {
    if (detached_) return Detached();
    return group_->Wait(rank_, command, timeout);
  }
  absl::optional<LocalCompletion> End() override {
    return detached_ ? absl::nullopt : group_->End(rank_);
  }
  absl::Status Detach() override {
    detached_ = true;
    return absl::OkStatus();
  }

 private:
  static absl::Status Detached() {
    return absl::FailedPreconditionError("this client has detached");
  }

  const std::shared_ptr<RemoteGroup> group_;
  const RankId rank_;
  bool detached_ = false;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<RankClient>>> OpenRemoteRanks(
    Client& client, const std::string& buffer, const RemoteRanksOptions& options) {
  const absl::StatusOr<BufferNameParts> name = ParseBufferName(buffer);
  if (!name.ok()) return name.status();
  const absl::StatusOr<v1::Buffer> found = client.GetBuffer(buffer);
  if (!found.ok()) return found.status();
  const absl::StatusOr<v1::Group> group = client.GetGroup(name->group.group_name());
  if (!group.ok()) return group.status();
  if (group->state() != v1::Group::ACTIVE || found->state() != v1::Buffer::ACTIVE) {
    return absl::FailedPreconditionError(
        absl::StrCat(buffer, " is ", v1::Buffer::State_Name(found->state()), " in a group that is ",
                     v1::Group::State_Name(group->state()), ", expected ACTIVE"));
  }
  const v1::BufferShape& shape = found->shape();
  const Geometry geometry{group->members_size(), shape.experts(), shape.tokens(),
                          shape.topk(),          shape.slots(),   shape.token_padding()};
  auto core = std::make_shared<RemoteGroup>(client, *group, *found, geometry, options);
  std::vector<std::unique_ptr<RankClient>> ranks;
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    ranks.push_back(std::make_unique<RemoteRank>(core, RankId(rank)));
  }
  return ranks;
}

}  // namespace perigee
