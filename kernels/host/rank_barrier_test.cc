#include "kernels/host/rank_barrier.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace perigee {
namespace {

// A clock that moves by a step each time it is read: a deadline passes without any waiting.
class SteppingClock {
 public:
  explicit SteppingClock(absl::Duration step) : step_(step) {}
  MonotonicClock Function() {
    return [this] {
      std::lock_guard<std::mutex> lock(mutex_);
      return now_ += step_;
    };
  }

 private:
  std::mutex mutex_;
  const absl::Duration step_;
  absl::Duration now_;
};

class RankBarrierTest : public testing::Test {
 protected:
  void Start(int ranks, MonotonicClock clock = SteadyClock(),
             absl::Duration spin = absl::ZeroDuration()) {
    pages_.clear();
    barriers_.clear();
    std::vector<ControlPage*> pages;
    for (int rank = 0; rank < ranks; ++rank) {
      pages_.push_back(std::make_unique<ControlPage>());
      pages.push_back(pages_.back().get());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      RankBarrierOptions options{RankId(rank), pages, clock};
      options.spin = spin;
      // A wake-up that is missed would make a test run for minutes.
      options.wait_slice = absl::Minutes(10);
      barriers_.push_back(std::make_unique<RankBarrier>(options));
    }
  }
  absl::Duration Forever(int rank) { return barriers_[rank]->now() + absl::Hours(1); }

  std::vector<std::unique_ptr<ControlPage>> pages_;
  std::vector<std::unique_ptr<RankBarrier>> barriers_;
};

// Each round, every rank publishes a plain number and reads everybody's: the barrier must order
// both, and the race detector looks on.
void RunRounds(std::vector<std::unique_ptr<RankBarrier>>& barriers, uint64_t rounds) {
  std::vector<uint64_t> published(barriers.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < barriers.size(); ++rank) {
    threads.emplace_back([&, rank] {
      RankBarrier& barrier = *barriers[rank];
      for (uint64_t round = 1; round <= rounds; ++round) {
        published[rank] = round;
        for (Phase phase : {Phase::kEntry, Phase::kExit}) {
          barrier.Arrive(BarrierPosition(round, phase));
          const WaitOutcome outcome =
              barrier.Wait(BarrierPosition(round, phase), barrier.now() + absl::Hours(1));
          ASSERT_EQ(outcome.reason, AbortReason::kNone);
          if (phase == Phase::kExit) continue;
          for (uint64_t number : published) ASSERT_EQ(number, round);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RankBarrierTest, NobodyPassesBeforeAllHaveArrived) {
  for (int ranks : {1, 2, 3, 8}) {
    Start(ranks);
    RunRounds(barriers_, 2000 / ranks);
  }
}

TEST_F(RankBarrierTest, PollingFirstChangesNothing) {
  Start(2, SteadyClock(), absl::Microseconds(100));
  RunRounds(barriers_, 300);
}

TEST_F(RankBarrierTest, TheDeadlineNamesTheFirstRankThatIsMissing) {
  SteppingClock clock(absl::Seconds(1));
  Start(4, clock.Function());
  barriers_[3]->Arrive(BarrierPosition(1, Phase::kEntry));
  barriers_[0]->Arrive(BarrierPosition(1, Phase::kEntry));
  const WaitOutcome outcome =
      barriers_[0]->Wait(BarrierPosition(1, Phase::kEntry), barriers_[0]->now());
  EXPECT_EQ(outcome.reason, AbortReason::kDeadline);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.seen, 0u);
}

TEST_F(RankBarrierTest, ARankAtTheNextEntryHasPassed) {
  Start(2);
  barriers_[0]->Arrive(BarrierPosition(3, Phase::kExit));
  barriers_[1]->Arrive(BarrierPosition(4, Phase::kEntry));
  const WaitOutcome outcome = barriers_[0]->Wait(BarrierPosition(3, Phase::kExit), Forever(0));
  EXPECT_EQ(outcome.reason, AbortReason::kNone);
}

TEST_F(RankBarrierTest, APositionThatNobodyCanHaveIsOutOfStep) {
  for (uint64_t position :
       {BarrierPosition(4, Phase::kExit), BarrierPosition(9, Phase::kEntry), UINT64_MAX}) {
    Start(3);
    barriers_[0]->Arrive(BarrierPosition(3, Phase::kExit));
    pages_[0]->peers[2].arrival = position;
    const WaitOutcome outcome = barriers_[0]->Wait(BarrierPosition(3, Phase::kExit), Forever(0));
    EXPECT_EQ(outcome.reason, AbortReason::kOutOfStep);
    EXPECT_EQ(outcome.rank, 2);
    EXPECT_EQ(outcome.seen, position);
  }
}

// A rank that jumps ahead wakes a waiter, although another one is still missing.
TEST_F(RankBarrierTest, AJumpAheadWakesTheWaiter) {
  Start(3);
  barriers_[0]->Arrive(BarrierPosition(1, Phase::kEntry));
  WaitOutcome outcome;
  std::thread waiter(
      [&] { outcome = barriers_[0]->Wait(BarrierPosition(1, Phase::kEntry), Forever(0)); });
  barriers_[2]->Arrive(BarrierPosition(7, Phase::kEntry));
  waiter.join();
  EXPECT_EQ(outcome.reason, AbortReason::kOutOfStep);
  EXPECT_EQ(outcome.rank, 2);
}

TEST_F(RankBarrierTest, AnAbortEndsTheWait) {
  Start(2);
  barriers_[0]->Arrive(BarrierPosition(1, Phase::kEntry));
  WaitOutcome outcome;
  std::thread waiter(
      [&] { outcome = barriers_[0]->Wait(BarrierPosition(1, Phase::kEntry), Forever(0)); });
  barriers_[0]->Abort();
  waiter.join();
  EXPECT_EQ(outcome.reason, AbortReason::kAborted);
  EXPECT_TRUE(barriers_[0]->aborted());
  EXPECT_FALSE(barriers_[1]->aborted());
  // Also when everybody has come by now.
  barriers_[1]->Arrive(BarrierPosition(1, Phase::kEntry));
  EXPECT_EQ(barriers_[0]->Wait(BarrierPosition(1, Phase::kEntry), Forever(0)).reason,
            AbortReason::kAborted);
}

// Garbage in a page of a peer can only mean a wrong or a missing wake-up.
TEST_F(RankBarrierTest, GarbageInThePagesOfPeersIsSurvived) {
  Start(3);
  for (auto& page : pages_) {
    for (PeerWords& words : page->peers) words.arrival = 0x123456789abcdef0u;
    page->doorbell = 0xffffffffu;
  }
  barriers_[1]->Arrive(BarrierPosition(1, Phase::kEntry));
  EXPECT_EQ(barriers_[1]->Wait(BarrierPosition(1, Phase::kEntry), Forever(1)).reason,
            AbortReason::kOutOfStep);
}

}  // namespace
}  // namespace perigee
