#include "kernels/host/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/shared_words.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

struct Shard {
  ControlPage control;
  PlanningHeader planning[2];
};

class CollectiveTest : public testing::Test {
 protected:
  void Start(int ranks, MonotonicClock clock = SteadyClock()) {
    shards_.clear();
    collectives_.clear();
    CollectiveOptions options;
    options.buffer = BufferId(4);
    options.generation = Generation(9);
    options.clock = std::move(clock);
    options.operation_timeout = absl::Minutes(5);
    for (int rank = 0; rank < ranks; ++rank) {
      shards_.push_back(std::make_unique<Shard>());
      ShardView view;
      view.control = &shards_[rank]->control;
      view.planning = shards_[rank]->planning;
      options.shards.push_back(view);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      options.rank = RankId(rank);
      collectives_.push_back(std::make_unique<Collective>(options));
    }
  }
  std::vector<absl::Status> OnAll(const std::function<absl::Status(int, Collective&)>& body) {
    std::vector<absl::Status> statuses(collectives_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      threads.emplace_back(
          [&, rank] { statuses[rank] = body(static_cast<int>(rank), *collectives_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  static absl::Status Run(Collective& collective, uint64_t sequence, uint32_t flags = 0) {
    absl::Status status = collective.Begin(Sequence(sequence), Operation::kDispatch);
    if (status.ok()) status = collective.Enter(OperationDescriptor(), flags);
    if (status.ok()) status = collective.Exit();
    return status;
  }

  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<Collective>> collectives_;
};

TEST_F(CollectiveTest, ManyOperationsWithEarlyEndsAmongThem) {
  Start(3);
  const std::vector<absl::Status> statuses = OnAll([&](int rank, Collective& collective) {
    for (uint64_t sequence = 1; sequence <= 300; ++sequence) {
      collective.RequestCancel(rank == 1 && sequence % 3 == 0);
      if (rank == 2 && sequence % 5 == 0) {
        EXPECT_TRUE(collective.Decline(Sequence(sequence)).ok());
        continue;
      }
      const absl::Status status = Run(collective, sequence);
      const absl::StatusCode expected = sequence % 5 == 0   ? absl::StatusCode::kFailedPrecondition
                                        : sequence % 3 == 0 ? absl::StatusCode::kCancelled
                                                            : absl::StatusCode::kOk;
      EXPECT_EQ(status.code(), expected) << status;
      EXPECT_EQ(collective.last_error().has_value(), !status.ok());
    }
    return absl::OkStatus();
  });
}

TEST_F(CollectiveTest, TheDeadlineCountsFromTheBeginning) {
  std::mutex mutex;
  absl::Duration now;
  // Jumps to the deadline once the wait has begun: Begin reads the clock once.
  int reads = 0;
  Start(2, [&] {
    std::lock_guard<std::mutex> lock(mutex);
    if (++reads > 1) now = absl::Minutes(5);
    return now;
  });
  const absl::Status status = Run(*collectives_[1], 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(status.message()),
            "rank 1, dispatch, sequence 1: rank 0 did not arrive within 5m; it is before its first "
            "operation");
  const ErrorRecord record = *collectives_[1]->last_error();
  EXPECT_EQ(record.generation, 9u);
  EXPECT_EQ(record.sequence, 1u);
  EXPECT_EQ(record.operation, static_cast<uint32_t>(Operation::kDispatch));
  EXPECT_EQ(record.phase, static_cast<uint32_t>(Phase::kEntry));
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.awaited_rank, 0);
}

// A rank that waits for its slot reads the clock, and one that has arrived does, too: whichever of
// them it is, the arrival says.
TEST_F(CollectiveTest, ARankArrivesWhenTheLastReadOfItsSlotHasEnded) {
  std::atomic<int> reads = 0;
  Start(2, [&] {
    ++reads;
    return absl::ZeroDuration();
  });
  std::atomic<uint64_t> words[2] = {0, 1};
  for (int rank = 0; rank < 2; ++rank) {
    collectives_[rank]->UseCredit({3, reinterpret_cast<uint64_t*>(&words[rank])});
  }
  absl::Status status;
  std::thread waiting([&] { status = Run(*collectives_[0], 1); });
  // Begin reads it once.
  while (reads < 4) std::this_thread::yield();
  EXPECT_EQ(LoadShared(shards_[1]->control.peers[0].arrival), 0u);
  words[0] = 1;
  EXPECT_TRUE(Run(*collectives_[1], 1).ok());
  waiting.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(LoadShared(shards_[1]->control.peers[0].entry[1]).slot, 3u);
  // Both slots are taken now.
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 0u);
}

TEST_F(CollectiveTest, ARankWhoseSlotIsReadForHalfOfTheTimeoutMakesAllLeave) {
  std::atomic<int> reads = 0;
  // Both begin before the time comes.
  Start(2, [&] { return ++reads > 2 ? absl::Seconds(150) : absl::ZeroDuration(); });
  std::atomic<uint64_t> words[2] = {0, 1};
  std::barrier<> together(2);
  const auto statuses = OnAll([&](int rank, Collective& collective) {
    collective.UseCredit({1, reinterpret_cast<uint64_t*>(&words[rank])});
    absl::Status status = collective.Begin(Sequence(1), Operation::kDispatch);
    together.arrive_and_wait();
    return status.ok() ? collective.Enter(OperationDescriptor(), 0) : status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("rank 0 declined: what read its dispatch-output slot last has not ended"));
  }
  // Nobody has taken a slot.
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 1u);
}

TEST_F(CollectiveTest, RanksOfDifferentGenerationsDisagree) {
  Start(2);
  CollectiveOptions options;
  options.rank = RankId(1);
  options.buffer = BufferId(4);
  options.generation = Generation(8);
  for (const auto& shard : shards_) {
    ShardView view;
    view.control = &shard->control;
    view.planning = shard->planning;
    options.shards.push_back(view);
  }
  collectives_[1] = std::make_unique<Collective>(options);
  const auto statuses = OnAll([](int, Collective& collective) { return Run(collective, 1); });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1 says generation 8, rank 0 says 9"));
  }
}

// A record that is not of this sequence is not mistaken for one that is.
TEST_F(CollectiveTest, AStaleRecordIsOutOfStep) {
  Start(2);
  PeerWords& words = shards_[0]->control.peers[1];
  words.arrival = BarrierPosition(2, Phase::kEntry);  // skipped the first operation
  words.entry[0].sequence = 2;
  const absl::Status status = Run(*collectives_[0], 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1 has nothing to say about sequence 1"));
}

TEST_F(CollectiveTest, FailedOperationsOfOneRankAloneBreakItsStep) {
  Start(1);
  ASSERT_TRUE(collectives_[0]->Begin(Sequence(1), Operation::kDispatch).ok());
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kStaleWeights);
  EXPECT_EQ(collectives_[0]->Fail(record, "old").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Run(*collectives_[0], 1).ok());
  ASSERT_TRUE(collectives_[0]->Begin(Sequence(2), Operation::kDispatch).ok());
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  EXPECT_EQ(collectives_[0]->Fail(record, "damaged").code(), absl::StatusCode::kUnavailable);
  const absl::Status next = Run(*collectives_[0], 2);
  EXPECT_EQ(next.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(next.message()), HasSubstr("no operation can follow"));
  EXPECT_TRUE(collectives_[0]->BeginLocal(Operation::kRunExperts).ok());
  EXPECT_FALSE(collectives_[0]->last_error().has_value());
}

TEST_F(CollectiveTest, SharedWordsAreCopiedWhole) {
  Statement statement;
  statement.tag = {BufferId(1), Generation(2), Sequence(3)};
  statement.descriptor.weights_version = 4;
  Statement shared;
  StoreShared(shared, statement);
  EXPECT_EQ(shared, statement);
  EXPECT_EQ(LoadShared(shared), statement);
}

}  // namespace
}  // namespace perigee
