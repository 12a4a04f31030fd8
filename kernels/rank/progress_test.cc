#include "kernels/rank/progress.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/layout/control_page.h"

namespace perigee {
namespace {

constexpr Generation kGeneration{9};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class ProgressTest : public ::testing::Test {
 protected:
  // Begins the operation and passes its entry.
  void Enter(uint64_t sequence, Operation operation = Operation::kDispatch) {
    ASSERT_TRUE(progress_.Begin(Sequence(sequence), operation).ok());
    progress_.ReachEntry();
  }

  Progress progress_{{RankId(1), kGeneration, absl::Seconds(3)}};
};

TEST_F(ProgressTest, SequencesOnlyGrow) {
  Enter(1);
  Enter(2);
  const absl::Status status = progress_.Begin(Sequence(2), Operation::kCombine);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(Text(status), "sequence 2 is not after 2, the last that rank 1 has entered");
  EXPECT_EQ(progress_.sequence(), Sequence(2)) << "refused: nothing changed";
  EXPECT_FALSE(progress_.last_error().has_value());
}

TEST_F(ProgressTest, AnOperationThatNeverEnteredUsesNoSequence) {
  ASSERT_TRUE(progress_.Begin(Sequence(1), Operation::kDispatch).ok());
  EXPECT_TRUE(progress_.Begin(Sequence(1), Operation::kCombine).ok());
  EXPECT_EQ(progress_.last_sequence(), Sequence(0));
}

TEST_F(ProgressTest, ASequenceLeftOutIsOutOfStep) {
  Enter(1);
  ASSERT_TRUE(progress_.Begin(Sequence(3), Operation::kCombine).ok());
  ASSERT_TRUE(progress_.skips());
  const absl::Status status = progress_.Skipped();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(Text(status),
            "rank 1, combine, sequence 3: rank 1 was called with sequence 3, expected 2");
  const ErrorRecord record = *progress_.last_error();
  EXPECT_EQ(record.reason, static_cast<uint32_t>(AbortReason::kOutOfStep));
  EXPECT_EQ(record.awaited_rank, 1);
  EXPECT_EQ(record.expected, static_cast<int64_t>(BarrierPosition(2, Phase::kEntry)));
  EXPECT_EQ(record.seen, static_cast<int64_t>(BarrierPosition(3, Phase::kEntry)));
}

TEST_F(ProgressTest, TheFirstOperationThatEntersMayTakeLonger) {
  Progress progress({RankId(1), kGeneration, absl::Seconds(3), absl::Minutes(1)});
  ASSERT_TRUE(progress.Begin(Sequence(1), Operation::kDispatch).ok());
  EXPECT_EQ(progress.timeout(), absl::Minutes(1));
  ASSERT_TRUE(progress.Begin(Sequence(1), Operation::kCombine).ok()) << "the first did not enter";
  progress.ReachEntry();
  EXPECT_EQ(progress.timeout(), absl::Minutes(1));
  EXPECT_EQ(Text(progress.WaitFailed(AbortReason::kDeadline, 2, 0)),
            "rank 1, combine, sequence 1: rank 2 did not arrive within 1m; it is before its first "
            "operation");
}

TEST_F(ProgressTest, LaterOperationsHaveTheirOwnTimeoutAlsoWhenTheyAreQueued) {
  Progress progress({RankId(1), kGeneration, absl::Seconds(3), absl::Minutes(1)});
  for (uint64_t sequence : {5, 6}) {
    ASSERT_TRUE(progress.Begin(Sequence(sequence), Operation::kDispatch).ok());
    progress.ReachEntry();
  }
  EXPECT_EQ(progress.timeout(), absl::Seconds(3));
  progress.Resume(Sequence(5), Operation::kDispatch, Phase::kEntry);
  EXPECT_EQ(progress.timeout(), absl::Minutes(1));
}

TEST_F(ProgressTest, AMissingRankIsNamedWithItsPlace) {
  Enter(4);
  EXPECT_EQ(Text(progress_.WaitFailed(AbortReason::kDeadline, 2, 0)),
            "rank 1, dispatch, sequence 4: rank 2 did not arrive within 3s; it is before its first "
            "operation");
  progress_.ReachExit();
  const absl::Status status =
      progress_.WaitFailed(AbortReason::kDeadline, 2, BarrierPosition(4, Phase::kEntry));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(Text(status),
            "rank 1, dispatch, sequence 4: rank 2 did not arrive within 3s; it is at the entry of "
            "sequence 4");
  const ErrorRecord record = *progress_.last_error();
  EXPECT_EQ(record.generation, kGeneration.value);
  EXPECT_EQ(record.sequence, 4u);
  EXPECT_EQ(record.operation, static_cast<uint32_t>(Operation::kDispatch));
  EXPECT_EQ(record.phase, static_cast<uint32_t>(Phase::kExit));
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.awaited_rank, 2);
  EXPECT_EQ(record.expected, static_cast<int64_t>(BarrierPosition(4, Phase::kExit)));
}

TEST_F(ProgressTest, ARankSomewhereElseIsOutOfStep) {
  Enter(1);
  const absl::Status status =
      progress_.WaitFailed(AbortReason::kOutOfStep, 0, BarrierPosition(7, Phase::kExit));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(Text(status),
            "rank 1, dispatch, sequence 1: rank 0 is out of step: it is at the exit of sequence 7 "
            "while this rank is at the entry of sequence 1");
}

TEST_F(ProgressTest, AfterAFailureThatPartsTheRanksNothingFollows) {
  Enter(1);
  const std::string first = Text(progress_.WaitFailed(AbortReason::kDeadline, 0, 0));
  for (const uint64_t sequence : {2u, 3u}) {
    const absl::Status status = progress_.Begin(Sequence(sequence), Operation::kCombine);
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_EQ(Text(status), "rank 1, combine, sequence " + std::to_string(sequence) +
                                ": no operation can follow in this generation after: " + first);
  }
  EXPECT_TRUE(progress_.BeginLocal(Operation::kRunExperts).ok()) << "it waits for nobody";
}

TEST_F(ProgressTest, WhatAllRanksLeaveLetsThemGoOn) {
  uint64_t sequence = 0;
  for (const AbortReason reason : {AbortReason::kBadRoute, AbortReason::kDisagreement,
                                   AbortReason::kCancelled, AbortReason::kDeclined}) {
    Enter(++sequence);
    Decision decision;
    decision.reason = reason;
    decision.rank = 2;
    decision.token = 5;
    decision.text = "why";
    const absl::Status status = progress_.Left(decision);
    EXPECT_EQ(Text(status), "rank 1, dispatch, sequence " + std::to_string(sequence) + ": why");
    EXPECT_EQ(progress_.last_error()->awaited_rank, 2);
    EXPECT_EQ(progress_.last_error()->token, 5);
  }
  Enter(++sequence);
}

TEST_F(ProgressTest, StaleWeightsLetThemGoOn) {
  Enter(1, Operation::kPrefetchWeights);
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kStaleWeights);
  EXPECT_TRUE(absl::IsFailedPrecondition(progress_.Fail(record, "old")));
  Enter(2);
}

TEST_F(ProgressTest, ANewOperationForgetsTheLastError) {
  Enter(1);
  Decision decision;
  decision.reason = AbortReason::kCancelled;
  progress_.Left(decision).IgnoreError();
  ASSERT_TRUE(progress_.last_error().has_value());
  ASSERT_TRUE(progress_.BeginLocal(Operation::kRunExperts).ok());
  EXPECT_FALSE(progress_.last_error().has_value());
  EXPECT_EQ(progress_.sequence(), Sequence(1)) << "a local operation stands at the last sequence";
}

TEST_F(ProgressTest, TheFirstAbortIsTheCause) {
  Enter(1);
  EXPECT_TRUE(progress_.CheckNotAborted().ok());
  progress_.Abort(2, "killed");
  progress_.Abort(0, "its lease ran out");
  EXPECT_TRUE(progress_.aborted());
  const absl::Status status = progress_.CheckNotAborted();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(Text(status), "rank 1, dispatch, sequence 1: rank 2 is lost: killed");
  EXPECT_EQ(progress_.last_error()->awaited_rank, 2);
  EXPECT_TRUE(absl::IsUnavailable(progress_.BeginLocal(Operation::kRunExperts)));
  EXPECT_EQ(Text(progress_.Begin(Sequence(2), Operation::kCombine)),
            "rank 1, combine, sequence 2: rank 2 is lost: killed");
}

TEST_F(ProgressTest, AnAbortMayNameNobody) {
  progress_.Abort(-1, "the group is closing");
  EXPECT_EQ(Text(progress_.Begin(Sequence(1), Operation::kBarrier)),
            "rank 1, barrier, sequence 1: aborted: the group is closing");
  EXPECT_EQ(progress_.last_error()->awaited_rank, -1);
}

// Given a wrong sequence after an abort, then the caller's mistake is told: it changes nothing.
TEST_F(ProgressTest, AWrongSequenceIsFoundBeforeAnAbort) {
  Enter(1);
  progress_.Abort(0, "killed");
  EXPECT_TRUE(absl::IsInvalidArgument(progress_.Begin(Sequence(1), Operation::kCombine)));
}

TEST_F(ProgressTest, AnErrorFoundLaterNamesTheOperationItCameFrom) {
  Enter(1, Operation::kDispatch);
  Enter(2, Operation::kCombine);
  progress_.Resume(Sequence(1), Operation::kDispatch, Phase::kExit);
  EXPECT_EQ(
      Text(progress_.WaitFailed(AbortReason::kDeadline, 0, BarrierPosition(1, Phase::kEntry))),
      "rank 1, dispatch, sequence 1: rank 0 did not arrive within 3s; it is at the entry of "
      "sequence 1");
  EXPECT_EQ(progress_.last_sequence(), Sequence(2));
}

}  // namespace
}  // namespace perigee
