#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The same on a data path that queues: as many iterations as make 48 operations are launched, then
// settled.
class QueuedProgramTest : public ProgramRunnerTest {
 protected:
  QueuedProgramTest() { path_->set_queues(); }
};

TEST_F(QueuedProgramTest, AnIterationIsQueuedAndMeasuredByTheDataPath) {
  const ProgramOutcome outcome = Run(Layer() + " iterations: 2");
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_EQ(outcome.progress.iterations_done(), 2);
  EXPECT_EQ(outcome.progress.last_sequence(), 6u);
  const v1::OperationTiming& combine = outcome.progress.timings(3);
  EXPECT_EQ(combine.count(), 2);
  EXPECT_EQ(combine.total_ns(), 2 * absl::ToInt64Nanoseconds(FakeDataPath::kQueuedDuration));
  EXPECT_TRUE(tensors_.Find("y").ok());
}

TEST_F(QueuedProgramTest, WhatFollowsAFailureDoesNotCount) {
  Fail("dispatch", Leave(AbortReason::kBadRoute, Operation::kDispatch, 1));
  const ProgramOutcome outcome = Run(Layer() + " iterations: 2");
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_weights 2", "run_experts 0", "combine 3",
                          "dispatch 4", "prefetch_weights 5", "run_experts 0", "combine 6"));
  EXPECT_EQ(outcome.status.reason(), "BAD_ROUTE");
  EXPECT_EQ(outcome.status.operation_error().sequence(), 1u);
  EXPECT_EQ(outcome.progress.iterations_done(), 0);
  EXPECT_EQ(outcome.progress.timings(0).count(), 0);
  EXPECT_EQ(ReasonOf(tensors_.Find("y").status()), kReasonStaleObject);
  path_->set_behaviour({});
  EXPECT_THAT(Run(kExperts, 7).status.message(), HasSubstr("no plan 'p'"));
  EXPECT_EQ(Run(Layer(), 8).status.code(), 0);
}

// The others have queued the rest before they hear of it.
TEST_F(QueuedProgramTest, ARefusalDeclinesTheRest) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      kBarrier, R"(operations { dispatch { hidden: "z" topk_experts: "t" plan: "p" } })", kPrefetch,
      kExperts, kBarrier, " iterations: 2"));
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 1", "decline 2", "decline 3", "decline 4",
                                          "decline 5", "decline 6", "decline 7", "decline 8"));
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_EQ(outcome.progress.last_sequence(), 8u);
  EXPECT_EQ(outcome.progress.timings(0).count(), 1);
}

// A program so long that one iteration is launched at a time.
TEST_F(QueuedProgramTest, ALastFailureOfThisRankAloneIsToldInTheNextIteration) {
  std::string program;
  for (int i = 0; i < 30; ++i) program += kBarrier;
  Fail("run_experts", {absl::FailedPreconditionError("slot 0 holds another expert"), {}});
  const ProgramOutcome outcome = Run(absl::StrCat(program, kDispatch, kExperts, " iterations: 3"));
  EXPECT_THAT(path_->calls(), SizeIs(63));  // of two iterations, without the second's run_experts
  EXPECT_EQ(path_->calls()[31], "run_experts 0");
  EXPECT_EQ(path_->calls().back(), "decline 62");
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(outcome.progress.iterations_done(), 0);
}

TEST_F(QueuedProgramTest, AFailureOfThisRankAloneIsToldByWhatIsQueuedBehindIt) {
  Fail("prefetch_weights", Leave(AbortReason::kStaleWeights, Operation::kPrefetchWeights, 2));
  const ProgramOutcome outcome = Run(Layer() + " iterations: 2");
  EXPECT_EQ(path_->calls().back(), "combine 6");
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(outcome.progress.last_sequence(), 6u);
}

TEST_F(QueuedProgramTest, IterationsAreTimedByMarksAroundThem) {
  const ProgramOutcome outcome = Run(Layer() + " iterations: 14 time_iterations: true");
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  // One before each iteration and one behind the last of 12 and of 2.
  const std::vector<std::string> calls = path_->calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "mark"), 14 + 2);
  EXPECT_EQ(calls[0], "mark");
  EXPECT_EQ(calls[5], "mark");
  EXPECT_EQ(calls.back(), "mark");
  const int64_t iteration_ns = 4 * absl::ToInt64Nanoseconds(FakeDataPath::kQueuedDuration);
  EXPECT_THAT(outcome.progress.iteration_ns(), AllOf(SizeIs(14), Each(iteration_ns)));
  EXPECT_EQ(outcome.progress.timings(3).count(), 14);
  EXPECT_EQ(outcome.progress.timings(3).total_ns(), 0);
  EXPECT_EQ(path_->timing(), Timing::kOperations) << "when the program has ended";
}

TEST_F(QueuedProgramTest, OfLongIterationsFourAreTimedAtATime) {
  std::string program;
  for (int i = 0; i < 30; ++i) program += kBarrier;
  const ProgramOutcome outcome = Run(program + " iterations: 5 time_iterations: true");
  EXPECT_EQ(path_->settled(), 2);
  EXPECT_THAT(outcome.progress.iteration_ns(), SizeIs(5));
}

TEST_F(QueuedProgramTest, IterationsFromAFailureOnHaveNoTime) {
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    return sequence.value < 5 ? FakeDataPath::Outcome()
                              : Leave(AbortReason::kCancelled, Operation::kBarrier, 5);
  });
  const ProgramOutcome outcome =
      Run(absl::StrCat(kBarrier, kBarrier, " iterations: 4 time_iterations: true"));
  EXPECT_EQ(outcome.status.reason(), "CANCELLED");
  EXPECT_THAT(outcome.progress.iteration_ns(), SizeIs(2));
  EXPECT_EQ(outcome.progress.iterations_done(), 2);
}

TEST_F(QueuedProgramTest, AMarkThatCannotBeSetDeclinesTheRest) {
  Fail("mark", {absl::InternalError("no event"), {}});
  const ProgramOutcome outcome =
      Run(absl::StrCat(kBarrier, " iterations: 2 time_iterations: true"));
  EXPECT_THAT(path_->calls(), ElementsAre("mark", "decline 1", "decline 2"));
  EXPECT_EQ(outcome.status.code(), 13);
  EXPECT_EQ(outcome.progress.iteration_ns_size(), 0);
}

TEST_F(QueuedProgramTest, WaitsAfterSoManyOperations) {
  const ProgramOutcome outcome = Run(Layer() + " iterations: 30");
  EXPECT_EQ(outcome.progress.iterations_done(), 30);
  EXPECT_EQ(path_->settled(), 3);  // 12, 12 and 6 iterations of 4 operations
}

// What a layer's backward may do: the slots are filled beside a dispatch by a saved plan.
constexpr char kBackward[] = R"pb(
  operations { dispatch { hidden: "x" topk_experts: "t" route_weights: "w" plan: "p" } }
  operations {
    prefetch_weights { plan: "p" layer: 1 weights_version: 3 }
    waits_for: 0
  }
  operations {
    dispatch { hidden: "x" saved_plan: "p" }
    waits_for: 0
  }
  operations {
    run_experts { plan: "p" layer: 1 weights_version: 3 }
    waits_for: [ 1, 2 ]
  }
  ordered_by_waits: true
)pb";

TEST_F(QueuedProgramTest, APrefetchRunsBesideWhatDoesNotWaitForIt) {
  const ProgramOutcome outcome = Run(std::string(kBackward) + " iterations: 2");
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_beside 2", "dispatch_with_plan 3", "join 0",
                          "run_experts 0", "dispatch 4", "prefetch_beside 5",
                          "dispatch_with_plan 6", "join 0", "run_experts 0"));
  EXPECT_EQ(outcome.progress.iterations_done(), 2);
  const v1::OperationTiming& prefetch = outcome.progress.timings(1);
  EXPECT_EQ(prefetch.count(), 2);
  EXPECT_EQ(prefetch.min_ns(), 2 * absl::ToInt64Nanoseconds(FakeDataPath::kQueuedDuration))
      << "of both its parts";
  EXPECT_EQ(outcome.progress.timings(2).count(), 2);
}

TEST_F(QueuedProgramTest, APrefetchIsJoinedAtTheIterationsEndAtTheLatest) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      kDispatch, R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 }
                                waits_for: 0 } operations { barrier {} } ordered_by_waits: true)"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_beside 2", "barrier 3", "join 0"));
  EXPECT_EQ(outcome.progress.iterations_done(), 1);
}

TEST_F(QueuedProgramTest, APrefetchThatTheNextOperationWaitsForRunsInItsTurn) {
  const ProgramOutcome outcome =
      Run(absl::StrCat(kDispatch, kBarrier,
                       R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 }
                                waits_for: [ 0, 1 ] }
                   operations { barrier {} waits_for: 2 } ordered_by_waits: true)"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "barrier 2", "prefetch_weights 3", "barrier 4"));
}

TEST_F(QueuedProgramTest, APrefetchRunsBesideTheDispatchThatMakesItsPlan) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      kDispatch, R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 }
                                waits_for: 0 }
                   operations { barrier {} waits_for: 1 } ordered_by_waits: true)"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_beside 2", "join 0", "barrier 3"));
}

TEST_F(QueuedProgramTest, StaleWeightsFoundBesideAreToldByWhatFollowsTheJoin) {
  Fail("join", Leave(AbortReason::kStaleWeights, Operation::kPrefetchWeights, 2));
  const ProgramOutcome outcome = Run(absl::StrCat(kBackward, kBarrier));
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(outcome.status.operation_error().sequence(), 2u);
  EXPECT_EQ(outcome.progress.timings(2).count(), 1) << "what ran beside it has ended well";
  EXPECT_EQ(outcome.progress.timings(1).count(), 0);
  EXPECT_EQ(outcome.progress.timings(3).count(), 0);
}

}  // namespace
}  // namespace perigee
