#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ProgramRunnerTest, RunsAWholeLayerInOrder) {
  const ProgramOutcome outcome = Run(Layer());
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_weights 2", "run_experts 0", "combine 3"));
  EXPECT_EQ(outcome.progress.program_id(), 5u);
  EXPECT_EQ(outcome.progress.group(), "tenants/t/groups/g");
  EXPECT_EQ(outcome.progress.iterations_done(), 1);
  EXPECT_EQ(outcome.progress.last_sequence(), 3u);
  EXPECT_EQ(outcome.progress.plan().token_count(), 3);
  EXPECT_EQ(path_->last_dispatch().token_count, 3);
  EXPECT_EQ(path_->last_combine().rows, path_->rows());
  EXPECT_EQ(path_->last_combine().row_weights, nullptr);
  EXPECT_EQ(path_->last_run_experts().output, path_->rows());
  EXPECT_EQ(path_->last_run_experts().row_weights, nullptr);
  EXPECT_EQ(path_->last_weights().layer, 1);
  EXPECT_EQ(path_->last_weights().version, 3u);
  EXPECT_EQ(path_->last_weights().home[0], memory_->own_home(1));
  const std::shared_ptr<StoredTensor> output = *tensors_.Find("y");
  EXPECT_EQ(reinterpret_cast<BFloat16*>(output->data())->bits, 0x3f80);
}

TEST_F(ProgramRunnerTest, WithoutAQueueOperationsRunInTheOrderOfTheList) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      kDispatch, R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 }
                                waits_for: 0 } operations { barrier {} } ordered_by_waits: true)"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 1", "prefetch_weights 2", "barrier 3"));
}

TEST_F(ProgramRunnerTest, OperationsThatShouldWaitForEachOtherLaunchNothing) {
  const ProgramOutcome outcome = Run(absl::StrCat(kDispatch, kCombine, "ordered_by_waits: true"));
  EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
  EXPECT_TRUE(path_->calls().empty());
}

TEST_F(ProgramRunnerTest, IterationsGoOnCounting) {
  const ProgramOutcome outcome = Run(Layer() + " iterations: 3");
  EXPECT_EQ(outcome.status.code(), 0);
  EXPECT_EQ(outcome.progress.iterations_done(), 3);
  EXPECT_EQ(outcome.progress.last_sequence(), 9u);
  EXPECT_EQ(path_->calls().back(), "combine 9");
  EXPECT_EQ(Run(kBarrier, 10).progress.last_sequence(), 10u);
}

TEST_F(ProgramRunnerTest, MeasuresEveryOperation) {
  int64_t milliseconds = 0;
  path_->set_behaviour([&](const std::string& operation, Sequence) {
    if (operation == "combine") clock_.Advance(absl::Milliseconds(++milliseconds));
    return FakeDataPath::Outcome();
  });
  const v1::ProgramProgress progress = Run(Layer() + " iterations: 3").progress;
  ASSERT_EQ(progress.timings_size(), 4);
  EXPECT_EQ(progress.timings(0).operation(), "dispatch");
  EXPECT_EQ(progress.timings(0).total_ns(), 0);
  const v1::OperationTiming& combine = progress.timings(3);
  EXPECT_EQ(combine.operation_index(), 3);
  EXPECT_EQ(combine.count(), 3);
  EXPECT_EQ(combine.min_ns(), 1'000'000);
  EXPECT_EQ(combine.max_ns(), 3'000'000);
  EXPECT_EQ(combine.total_ns(), 6'000'000);
}

TEST_F(ProgramRunnerTest, KeepsDurationsWhereAskedAndTellsThemAtTheEnd) {
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    clock_.Advance(absl::Nanoseconds(sequence.value));
    return FakeDataPath::Outcome();
  });
  interval_ = absl::Nanoseconds(1);
  events_.on_progress = [](const v1::ProgramProgress& progress) {
    EXPECT_EQ(progress.timings(0).duration_ns_size(), 0);
  };
  EXPECT_EQ(Run(kBarrier).progress.timings(0).duration_ns_size(), 0);
  const ProgramOutcome kept = Run(absl::StrCat(kBarrier, "iterations: 3 keep_durations: true"), 2);
  EXPECT_THAT(kept.progress.timings(0).duration_ns(), ElementsAre(2, 3, 4));
}

TEST_F(ProgramRunnerTest, TimesIterationsWhereAskedAndTellsThemAtTheEnd) {
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    clock_.Advance(absl::Nanoseconds(sequence.value));
    return FakeDataPath::Outcome();
  });
  interval_ = absl::Nanoseconds(1);
  events_.on_progress = [](const v1::ProgramProgress& progress) {
    EXPECT_EQ(progress.iteration_ns_size(), 0);
  };
  EXPECT_EQ(Run(kBarrier).progress.iteration_ns_size(), 0);
  const ProgramOutcome timed =
      Run(absl::StrCat(kBarrier, kBarrier, "iterations: 3 time_iterations: true"), 2);
  EXPECT_THAT(timed.progress.iteration_ns(), ElementsAre(2 + 3, 4 + 5, 6 + 7));
  EXPECT_EQ(timed.progress.timings(1).count(), 3);
  EXPECT_EQ(timed.progress.timings(1).total_ns(), 0);
  EXPECT_EQ(timed.progress.timings(1).max_ns(), 0);
}

TEST_F(ProgramRunnerTest, AnIterationThatFailsHasNoTime) {
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    clock_.Advance(absl::Nanoseconds(1));
    return sequence.value < 5 ? FakeDataPath::Outcome()
                              : Leave(AbortReason::kCancelled, Operation::kBarrier, 5);
  });
  const ProgramOutcome outcome =
      Run(absl::StrCat(kBarrier, kBarrier, "iterations: 4 time_iterations: true"));
  EXPECT_EQ(outcome.status.reason(), "CANCELLED");
  EXPECT_THAT(outcome.progress.iteration_ns(), ElementsAre(2, 2));
}

TEST_F(ProgramRunnerTest, ReportsProgressOncePerInterval) {
  interval_ = absl::Milliseconds(10);
  std::vector<int32_t> reported;
  int operations = 0;
  events_.on_progress = [&](const v1::ProgramProgress& progress) {
    reported.push_back(progress.iterations_done());
  };
  events_.on_operation_done = [&] { ++operations; };
  path_->set_behaviour([&](const std::string&, Sequence) {
    clock_.Advance(absl::Milliseconds(5));
    return FakeDataPath::Outcome();
  });
  Run(absl::StrCat(kBarrier, " iterations: 6"));
  EXPECT_THAT(reported, ElementsAre(1, 3, 5));
  EXPECT_EQ(operations, 6);
}

TEST_F(ProgramRunnerTest, AWrongProgramLaunchesNothing) {
  const ProgramOutcome outcome = Run(absl::StrCat(kBarrier, "operations {}"));
  EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
  EXPECT_TRUE(path_->calls().empty());
  EXPECT_EQ(outcome.progress.last_sequence(), 0u);
}

TEST_F(ProgramRunnerTest, AMissingInputIsDeclinedAtItsOwnSequence) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      kBarrier, R"(operations { dispatch { hidden: "z" topk_experts: "t" plan: "p" } })",
      kBarrier));
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 1", "decline 2"));
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_EQ(outcome.status.code(), 9);
  EXPECT_THAT(outcome.status.message(), HasSubstr("'z'"));
  EXPECT_EQ(outcome.progress.last_sequence(), 2u);
  EXPECT_EQ(outcome.progress.iterations_done(), 0);
  // The next program begins after the declined operation.
  EXPECT_EQ(Run(kBarrier, 3).status.code(), 0);
}

TEST_F(ProgramRunnerTest, InputsMustFitEachOther) {
  Write("t", v1::TENSOR_DTYPE_INT32, {2, 2});
  const ProgramOutcome outcome = Run(kDispatch);
  EXPECT_THAT(outcome.status.message(), HasSubstr("int32 [2, 2]"));
  EXPECT_THAT(outcome.status.message(), HasSubstr("int32 [3, 2]"));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 1"));
}

TEST_F(ProgramRunnerTest, AMissingPlanIsDeclined) {
  EXPECT_EQ(Run(kCombine).status.reason(), "STALE_OBJECT");
  EXPECT_EQ(Run(R"(operations { dispatch { hidden: "x" saved_plan: "p" } })", 2).status.reason(),
            "STALE_OBJECT");
  EXPECT_THAT(path_->calls(), ElementsAre("decline 1", "decline 2"));
}

TEST_F(ProgramRunnerTest, ConsumedRowsAreRefusedUntilDispatchedAgain) {
  EXPECT_EQ(Run(Layer()).status.code(), 0);
  ProgramOutcome outcome = Run(kCombine, 4);
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(outcome.status.message(), HasSubstr("consumed"));
  outcome = Run(absl::StrCat(R"(operations { dispatch { hidden: "x" saved_plan: "p" } })", kExperts,
                             kCombine),
                5);
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_EQ(path_->calls().back(), "combine 6");
}

TEST_F(ProgramRunnerTest, WeightsThatDidNotTravelCannotBeGathered) {
  const ProgramOutcome outcome = Run(absl::StrCat(
      R"(operations { dispatch { hidden: "x" topk_experts: "t" plan: "p" } })",
      R"(operations { combine { plan: "p" output: "y" route_weights_output: "v" } })"));
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 1", "decline 2"));
}

TEST_F(ProgramRunnerTest, GatheredWeightsHaveTheirOutput) {
  EXPECT_EQ(Run(absl::StrCat(kDispatch, R"(operations { combine {
        plan: "p" output: "y" route_weights_output: "v" } })"))
                .status.code(),
            0);
  EXPECT_EQ(path_->last_combine().row_weights, path_->row_weights());
  EXPECT_EQ(Describe((*tensors_.Find("v"))->spec()), "float32 [4, 2]");
}

TEST_F(ProgramRunnerTest, ALocalFailureDeclinesTheNextCollectiveOperation) {
  Fail("run_experts", {absl::FailedPreconditionError("slot 0 holds another expert"), {}});
  const ProgramOutcome outcome = Run(Layer());
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 1", "prefetch_weights 2", "run_experts 0", "decline 3"));
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(outcome.progress.last_sequence(), 3u);
  EXPECT_EQ(ReasonOf(tensors_.Find("y").status()), kReasonStaleObject);
}

TEST_F(ProgramRunnerTest, ALocalFailureDeclinesInTheNextIterationToo) {
  Fail("run_experts", {absl::InternalError("x"), {}});
  const ProgramOutcome outcome = Run(absl::StrCat(kDispatch, kExperts, kExperts, " iterations: 2"));
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 1", "run_experts 0", "decline 2"));
  EXPECT_EQ(outcome.progress.iterations_done(), 0);
}

TEST_F(ProgramRunnerTest, ALastLocalFailureIsJustReported) {
  Fail("run_experts", {absl::InternalError("x"), {}});
  const ProgramOutcome outcome = Run(absl::StrCat(kDispatch, kExperts));
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 1", "run_experts 0"));
  EXPECT_EQ(outcome.status.reason(), "INTERNAL");
  EXPECT_EQ(outcome.progress.last_sequence(), 1u);
}

TEST_F(ProgramRunnerTest, StaleWeightsFoundInACollectiveOperationDeclineTheNext) {
  Fail("prefetch_weights", Leave(AbortReason::kStaleWeights, Operation::kPrefetchWeights, 2));
  const ProgramOutcome outcome = Run(Layer());
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 1", "prefetch_weights 2", "decline 3"));
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(outcome.progress.last_sequence(), 3u);
}

TEST_F(ProgramRunnerTest, AnOperationThatTheDataPathRefusesIsDeclined) {
  Fail("barrier", {absl::InvalidArgumentError("no"), {}});
  const ProgramOutcome outcome = Run(absl::StrCat(kBarrier, kBarrier));
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 1", "decline 1"));
  EXPECT_EQ(outcome.status.code(), 3);
}

TEST_F(ProgramRunnerTest, AnOperationThatAllRanksLeaveEndsTheProgram) {
  for (const AbortReason reason :
       {AbortReason::kBadRoute, AbortReason::kDisagreement, AbortReason::kCancelled,
        AbortReason::kDeclined, AbortReason::kAborted, AbortReason::kDeadline,
        AbortReason::kOutOfStep}) {
    const uint64_t first = objects_.last_sequence().value + 1;
    Fail("barrier", Leave(reason, Operation::kBarrier, first));
    const size_t before = path_->calls().size();
    const ProgramOutcome outcome = Run(absl::StrCat(kBarrier, kBarrier), first);
    EXPECT_EQ(path_->calls().size(), before + 1);
    EXPECT_EQ(outcome.progress.last_sequence(), first);
    EXPECT_EQ(outcome.status.operation_error().sequence(), first);
    EXPECT_NE(outcome.status.reason(), "INTERNAL");
  }
}

TEST_F(ProgramRunnerTest, WhatAnEarlyEndSpoilsIsRefusedAfterwards) {
  EXPECT_EQ(Run(Layer()).status.code(), 0);
  Fail("combine", Leave(AbortReason::kCancelled, Operation::kCombine, 5));
  EXPECT_EQ(Run(absl::StrCat(kDispatch, kCombine), 4).status.reason(), "CANCELLED");
  EXPECT_THAT(std::string(tensors_.Find("y").status().message()), HasSubstr("sequence 5"));
  path_->set_behaviour({});
  const ProgramOutcome outcome = Run(kCombine, 6);
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(outcome.status.message(), HasSubstr("ended early"));
}

TEST_F(ProgramRunnerTest, ADeclinedDispatchSpoilsTheRowsOnThisRankToo) {
  EXPECT_EQ(Run(kDispatch).status.code(), 0);
  Run(R"(operations { dispatch { hidden: "z" topk_experts: "t" plan: "p" } })", 2);
  EXPECT_EQ(Run(kExperts, 3).status.reason(), "STALE_OBJECT");
}

TEST_F(ProgramRunnerTest, ADeclineThatFailsIsTheGraverFailure) {
  Fail("decline", Leave(AbortReason::kAborted, Operation::kNone, 1));
  const ProgramOutcome outcome = Run(kCombine);
  EXPECT_EQ(outcome.status.reason(), "GENERATION_ABORTED");
  EXPECT_EQ(outcome.status.code(), 14);
  EXPECT_THAT(outcome.status.message(), HasSubstr("no plan 'p'"));
}

TEST_F(ProgramRunnerTest, NoRoomForAnOutputIsDeclinedAtTheFirstCollectiveOperation) {
  const ByteBudget::Share all = *budget_.Take((1 << 20) - budget_.used_bytes());
  const ProgramOutcome outcome = Run(Layer());
  EXPECT_EQ(outcome.status.code(), 8);
  EXPECT_THAT(path_->calls(), ElementsAre("decline 1"));
  EXPECT_EQ(outcome.progress.last_sequence(), 1u);
}

TEST_F(ProgramRunnerTest, AUsedSequenceIsRefused) {
  EXPECT_EQ(Run(kBarrier, 5).status.code(), 0);
  const ProgramOutcome outcome = Run(kBarrier, 5);
  EXPECT_EQ(outcome.status.reason(), "OUT_OF_STEP");
  EXPECT_EQ(outcome.progress.last_sequence(), 5u);
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 5"));
}

TEST_F(ProgramRunnerTest, AnAbortFromAnotherThreadEndsAWait) {
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    return path_->AwaitAbort(Operation::kBarrier, sequence);
  });
  std::thread other([&] {
    path_->AwaitWaiter();
    path_->Abort(0, "gone");
  });
  EXPECT_EQ(Run(kBarrier).status.reason(), "GENERATION_ABORTED");
  other.join();
}

TEST_F(ProgramRunnerTest, OverMessagesACopyToTheNextRankIsEnteredByAll) {
  const std::string program = absl::StrCat(
      "operations { probe_copy { to_next_rank: true } } operations { probe_copy {} } ", kBarrier);
  transport_ = Transport::kNccl;
  EXPECT_EQ(Run(program).status.code(), 0);
  EXPECT_THAT(path_->calls(),
              ElementsAre("barrier 1", "probe_copy to next 0", "probe_copy 0", "barrier 2"));
}

TEST_F(ProgramRunnerTest, WhereRanksStoreACopyToTheNextOneIsLocal) {
  EXPECT_EQ(Run(absl::StrCat("operations { probe_copy { to_next_rank: true } } ", kBarrier))
                .status.code(),
            0);
  EXPECT_THAT(path_->calls(), ElementsAre("probe_copy to next 0", "barrier 1"));
}

// The others wait for what this rank would have sent.
TEST_F(ProgramRunnerTest, OverMessagesACopyThatARankDoesNotComeToIsDeclined) {
  transport_ = Transport::kNccl;
  Fail("run_experts", {absl::FailedPreconditionError("stale"), absl::nullopt});
  const ProgramOutcome outcome = Run(absl::StrCat(
      kDispatch, kPrefetch, kExperts, "operations { probe_copy { to_next_rank: true } }"));
  EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS");
  EXPECT_EQ(path_->calls().back(), "decline 3");
  EXPECT_EQ(outcome.progress.last_sequence(), 3u);
}

// Refused behind its entry, it has no sequence left to be declined at.
TEST_F(ProgramRunnerTest, OverMessagesACopyRefusedBehindItsEntryIsToldAtTheNextOperation) {
  transport_ = Transport::kNccl;
  Fail("probe_copy to next", {absl::InternalError("the device is not well"), absl::nullopt});
  const ProgramOutcome outcome =
      Run(absl::StrCat("operations { probe_copy { to_next_rank: true } } ", kBarrier));
  EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 1", "probe_copy to next 0", "decline 2"));
}

}  // namespace
}  // namespace perigee
