// One rank on a data path that does as it is told.
#include "worker/attach/local_executor.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/executor_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LocalPlanId kPlan(9);

TEST_F(LocalExecutorTest, ALayerRunsOnTheArena) {
  ExpectOk(LocalDispatch{kPlan, 3, true});
  EXPECT_EQ(path_->last_dispatch().hidden, arena_.hidden);
  EXPECT_EQ(path_->last_dispatch().topk_experts, arena_.topk_experts);
  EXPECT_EQ(path_->last_dispatch().route_weights, arena_.route_weights);
  EXPECT_EQ(path_->last_dispatch().token_count, 3);
  EXPECT_EQ(*arena_.plan.sequence, 5u);
  EXPECT_EQ(arena_.plan.experts_to_copy[0], -1) << "as the plan has it";
  ExpectOk(LocalPrefetchWeights{kPlan, 1, 3});
  EXPECT_EQ(path_->last_weights().layer, 1);
  EXPECT_EQ(path_->last_weights().version, 3u);
  ExpectOk(LocalRunExperts{kPlan, 1, 3, true});
  EXPECT_EQ(path_->last_run_experts().output, path_->rows());
  ExpectOk(LocalCombine{kPlan, true});
  EXPECT_EQ(path_->last_combine().rows, path_->rows());
  ExpectOk(LocalDispatchWithPlan{kPlan, 2, false});
  EXPECT_EQ(path_->last_dispatch().route_weights, nullptr);
  ExpectOk(LocalBarrier{});
  ExpectOk(LocalEmpty{});
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "prefetch_weights 6", "run_experts 0",
                                          "combine 7", "dispatch_with_plan 8", "barrier 9"));
  EXPECT_EQ(executor_->last_sequence(), Sequence(9));
  EXPECT_EQ(objects_.last_sequence(), Sequence(9));
  EXPECT_EQ(executor_->in_collective(), 0u);
  EXPECT_FALSE(executor_->fatal().has_value());
}

// Other ranks' may have been filled.
TEST_F(LocalExecutorTest, SlotsAreForgottenWhateverBecomesOfAPrefetch) {
  objects_.NotePlanMade("p", Sequence(3));
  objects_.NoteSlotsFilled("p", 0, 1);
  ASSERT_TRUE(objects_.SlotsFilledFor("p", 0, 1));
  EXPECT_FALSE(Do(LocalPrefetchWeights{kPlan, 1, 3}).status.ok()) << "there is no such plan";
  EXPECT_FALSE(objects_.SlotsFilledFor("p", 0, 1));
}

TEST_F(LocalExecutorTest, WeightsThatTheClientHasWrittenNeedNoDispatch) {
  ExpectOk(LocalDispatch{kPlan, 1, false});
  ExpectOk(LocalCombine{kPlan, true, true});
  EXPECT_TRUE(path_->last_combine().own_weights);
  EXPECT_EQ(path_->last_combine().row_weights, path_->row_weights());
  ExpectOk(LocalDispatch{kPlan, 1, false});
  EXPECT_THAT(std::string(Do(LocalCombine{kPlan, true}).status.message()),
              HasSubstr("dispatched without"));
}

TEST_F(LocalExecutorTest, GradientsAreReducedByAPlanThatLives) {
  ExpectOk(LocalDispatch{kPlan, 1, false});
  EXPECT_EQ(Do(LocalReduceGradients{LocalPlanId(77), 0}).reason, "STALE_OBJECT");
  EXPECT_THAT(std::string(Do(LocalReduceGradients{kPlan, 9}).status.message()),
              HasSubstr("layer is 9"));
  ExpectOk(LocalReduceGradients{kPlan, 1});
  EXPECT_EQ(path_->last_gradients().layer, 1);
  EXPECT_EQ(path_->last_gradients().own_slots, memory_->own_gradients()->data());
  EXPECT_THAT(path_->calls(),
              ElementsAre("dispatch 5", "decline 6", "decline 7", "reduce_gradients 8"));
}

TEST_F(LocalExecutorTest, PlansLiveByTheirIds) {
  ExpectOk(LocalDispatch{kPlan, 1, false});
  ExpectOk(LocalClonePlan{LocalPlanId(10), kPlan});
  ExpectOk(LocalReleasePlan{kPlan});
  EXPECT_EQ(executor_->plan_count(), 1u);
  ExpectOk(LocalDispatchWithPlan{LocalPlanId(10), 1, false});
  const LocalCompletion gone = Do(LocalReleasePlan{kPlan});
  EXPECT_EQ(gone.reason, "STALE_OBJECT");
  EXPECT_THAT(std::string(gone.status.message()), HasSubstr("there is no plan 9"));
  EXPECT_EQ(Do(LocalClonePlan{LocalPlanId(11), kPlan}).reason, "STALE_OBJECT");
  for (uint64_t id = 1000; executor_->plan_count() < kMaxPlans; ++id) {
    ExpectOk(LocalClonePlan{LocalPlanId(id), LocalPlanId(10)});
  }
  EXPECT_EQ(Do(LocalClonePlan{LocalPlanId(1), LocalPlanId(10)}).status.code(),
            absl::StatusCode::kResourceExhausted);
  ExpectOk(LocalClonePlan{LocalPlanId(1000), LocalPlanId(10)});
}

TEST_F(LocalExecutorTest, ACollectiveCommandThatIsRefusedIsDeclined) {
  const LocalCompletion refused = Do(LocalCombine{kPlan, false});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.reason, "STALE_OBJECT");
  EXPECT_EQ(refused.sequence, Sequence(5));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5"));
  ExpectOk(LocalBarrier{});
  EXPECT_EQ(Do(LocalRunExperts{kPlan, 0, 1, false}).reason, "STALE_OBJECT");
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5", "barrier 6")) << "local: nobody waits";
  EXPECT_FALSE(executor_->fatal().has_value());
}

TEST_F(LocalExecutorTest, AnEntryThatSaysNonsenseIsDeclinedWhereItTakesASequence) {
  CommandEntry entry = EncodeCommand({Sequence(5), LocalDispatch{kPlan, 1, false}}, Generation(7));
  entry.token_count = 1000;
  EXPECT_EQ(Execute(entry).reason, "INVALID_PROGRAM");
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5"));
  entry.generation = 8;
  entry.token_count = 1;
  const LocalCompletion stale = Execute(entry);
  EXPECT_EQ(stale.status.code(), absl::StatusCode::kFailedPrecondition) << stale.status;
  entry = EncodeCommand({Sequence(0), LocalEmpty{}}, Generation(7));
  entry.kind = 77;
  const size_t calls = path_->calls().size();
  EXPECT_EQ(Execute(entry).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(path_->calls().size(), calls);
}

TEST_F(LocalExecutorTest, WhereAnOperationStoodIsReported) {
  FakeDataPath::Outcome left =
      path_->LeaveEarly(AbortReason::kBadRoute, Operation::kDispatch, Sequence(5), 0);
  left.record->token = 2;
  left.record->k = 1;
  left.record->seen = 99;
  Fail("dispatch", left);
  const LocalCompletion bad = Do(LocalDispatch{kPlan, 3, false});
  EXPECT_EQ(bad.reason, "BAD_ROUTE");
  EXPECT_EQ(bad.token, 2);
  EXPECT_EQ(bad.k, 1);
  EXPECT_EQ(bad.seen, 99);
  EXPECT_EQ(bad.rank, 0);
  EXPECT_FALSE(executor_->fatal().has_value()) << "all ranks have left it";
  EXPECT_EQ(executor_->plan_count(), 0u);
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5"));
}

TEST_F(LocalExecutorTest, WhatLeavesRanksOutOfStepIsFatal) {
  Fail("barrier", path_->LeaveEarly(AbortReason::kDeadline, Operation::kBarrier, Sequence(5), 0));
  EXPECT_EQ(Do(LocalBarrier{}).reason, "DEADLINE");
  ASSERT_TRUE(executor_->fatal().has_value());
  EXPECT_EQ(executor_->fatal()->reason(), "DEADLINE");
  EXPECT_EQ(executor_->fatal()->worker(), "workers/a");
}

TEST_F(LocalExecutorTest, WhereTheOthersCannotBeToldThatIsTheGraverFailure) {
  Fail("decline", path_->LeaveEarly(AbortReason::kDeadline, Operation::kNone, Sequence(5), 0));
  const LocalCompletion refused = Do(LocalCombine{kPlan, false});
  EXPECT_EQ(refused.reason, "DEADLINE");
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("there is no plan 9"));
  EXPECT_TRUE(executor_->fatal().has_value());
}

TEST_F(LocalExecutorTest, TheCollectiveOperationUnderWayIsSeenFromOutside) {
  std::vector<uint64_t> seen;
  path_->set_behaviour([&](const std::string&, Sequence) {
    seen.push_back(executor_->in_collective());
    return FakeDataPath::Outcome();
  });
  ExpectOk(LocalDispatch{kPlan, 1, false});
  ExpectOk(LocalRunExperts{kPlan, 0, 1, false});
  ExpectOk(LocalBarrier{});
  EXPECT_THAT(seen, ElementsAre(5, 0, 6));
}

// Where operations queue: what is begun may still run.
class QueuedExecutorTest : public LocalExecutorTest {
 protected:
  QueuedExecutorTest() { path_->set_queues(); }

  // Of the sequence.
  void FailAt(uint64_t failed, FakeDataPath::Outcome outcome) {
    path_->set_behaviour([=](const std::string&, Sequence sequence) {
      return sequence == Sequence(failed) ? outcome : FakeDataPath::Outcome();
    });
  }
};

TEST_F(QueuedExecutorTest, ManyAreUnderWayAndEndInOrder) {
  path_->set_running(0);
  Begin(LocalDispatch{kPlan, 3, true});
  Begin(LocalEmpty{});
  Begin(LocalRunExperts{kPlan, 0, 3, false});
  Begin(LocalCombine{kPlan, true});
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "run_experts 0", "combine 6"));
  EXPECT_EQ(NextReason(), "running");
  EXPECT_EQ(executor_->in_collective(), 5u);
  path_->set_running(1);
  const absl::optional<LocalCompletion> dispatched = executor_->TakeEnded();
  ASSERT_TRUE(dispatched.has_value());
  EXPECT_EQ(dispatched->sequence, Sequence(5));
  EXPECT_EQ(dispatched->duration, FakeDataPath::kQueuedDuration);
  EXPECT_EQ(executor_->in_collective(), 6u);
  EXPECT_EQ(NextReason(), "OK") << "the empty one";
  EXPECT_EQ(NextReason(), "running");
  Begin(LocalBarrier{});
  path_->set_running(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NextReason(), "OK");
  EXPECT_TRUE(executor_->idle());
  EXPECT_EQ(executor_->in_collective(), 0u);
  EXPECT_EQ(path_->settled(), 0) << "nobody was waited for";
}

TEST_F(QueuedExecutorTest, AFailureIsItsOperationsAndThoseBehindAreNotDone) {
  FailAt(6, path_->LeaveEarly(AbortReason::kBadRoute, Operation::kDispatch, Sequence(6), 0));
  Begin(LocalBarrier{});
  Begin(LocalDispatch{kPlan, 3, false});
  Begin(LocalClonePlan{LocalPlanId(10), kPlan});
  Begin(LocalCombine{kPlan, false});
  Begin(LocalEmpty{});
  Begin(LocalBarrier{});
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(NextReason(), "BAD_ROUTE");
  EXPECT_EQ(NextReason(), "STALE_OBJECT");
  const absl::optional<LocalCompletion> behind = executor_->TakeEnded();
  ASSERT_TRUE(behind.has_value());
  EXPECT_EQ(behind->reason, "DECLINED");
  EXPECT_EQ(behind->sequence, Sequence(7));
  EXPECT_THAT(std::string(behind->status.message()),
              HasSubstr("not done: the dispatch ahead of it ended early: left early"));
  EXPECT_EQ(NextReason(), "OK") << "the empty one";
  EXPECT_EQ(NextReason(), "DECLINED");
  EXPECT_FALSE(executor_->fatal().has_value());
  EXPECT_EQ(executor_->plan_count(), 0u);
  EXPECT_EQ(objects_.rows().state, RowsState::kUndefined);
  Begin(LocalDispatch{kPlan, 3, false});
  Begin(LocalCombine{kPlan, false});
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(NextReason(), "OK");
}

TEST_F(QueuedExecutorTest, WhatAFailedDispatchReplacedComesBack) {
  Begin(LocalDispatch{kPlan, 3, false});
  EXPECT_EQ(NextReason(), "OK");
  FailAt(6, path_->LeaveEarly(AbortReason::kDeclined, Operation::kBarrier, Sequence(6), 0));
  Begin(LocalBarrier{});
  Begin(LocalDispatch{kPlan, 2, false});
  Begin(LocalCombine{kPlan, false});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NextReason(), "DECLINED");
  EXPECT_EQ(objects_.rows().state, RowsState::kDispatched) << "nothing has touched them";
  EXPECT_EQ(objects_.rows().plan.sequence, Sequence(5));
  Begin(LocalCombine{kPlan, false});
  EXPECT_EQ(NextReason(), "OK") << "by the plan of sequence 5";
}

TEST_F(QueuedExecutorTest, WhatACloneOfAPlanThatIsNotMadeReplacedComesBack) {
  constexpr LocalPlanId kClone(10), kOther(11);
  Begin(LocalDispatch{kPlan, 3, false});
  Begin(LocalClonePlan{kClone, kPlan});
  Begin(LocalClonePlan{kOther, kPlan});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NextReason(), "OK");
  FailAt(6, path_->LeaveEarly(AbortReason::kDeclined, Operation::kBarrier, Sequence(6), 0));
  Begin(LocalBarrier{});
  Begin(LocalDispatch{kPlan, 2, false});
  Begin(LocalClonePlan{kClone, kPlan});
  Begin(LocalClonePlan{LocalPlanId(12), kPlan});
  Begin(LocalReleasePlan{kOther});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(NextReason(), "DECLINED");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(NextReason(), "STALE_OBJECT");
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(executor_->plan_count(), 2u) << "those of sequence 5, but for the one released";
  Begin(LocalCombine{kClone, false});
  EXPECT_EQ(NextReason(), "OK") << "by the plan of sequence 5";
  Begin(LocalDispatchWithPlan{kOther, 1, false});
  EXPECT_EQ(NextReason(), "STALE_OBJECT") << "it was released all the same";
}

TEST_F(QueuedExecutorTest, WhatIsRefusedIsDeclinedBehindWhatRuns) {
  path_->set_running(0);
  Begin(LocalBarrier{});
  Begin(LocalCombine{kPlan, false});
  Begin(LocalBarrier{});
  EXPECT_THAT(path_->calls(), ElementsAre("barrier 5", "decline 6", "barrier 7"));
  path_->set_running(1);
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(NextReason(), "running") << "the others have not been told yet";
  path_->set_running(2);
  EXPECT_EQ(NextReason(), "STALE_OBJECT");
  EXPECT_EQ(NextReason(), "OK");
}

TEST_F(QueuedExecutorTest, OneThatLeavesRanksOutOfStepIsFatal) {
  FailAt(5, path_->LeaveEarly(AbortReason::kDeadline, Operation::kBarrier, Sequence(5), 0));
  Begin(LocalBarrier{});
  Begin(LocalBarrier{});
  EXPECT_EQ(NextReason(), "DEADLINE");
  EXPECT_TRUE(executor_->fatal().has_value());
  executor_->Clear();
  EXPECT_TRUE(executor_->idle());
}

TEST_F(QueuedExecutorTest, ACommandWhoseInputsDoNotComeIsDeclinedAndNotFatal) {
  const CommandEntry entry = EncodeCommand({Sequence(5), LocalBarrier{}}, Generation(7));
  executor_->Refuse(entry, absl::DeadlineExceededError("late"));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5"));
  EXPECT_EQ(NextReason(), "DEADLINE");
  EXPECT_FALSE(executor_->fatal().has_value());
}

}  // namespace
}  // namespace perigee
