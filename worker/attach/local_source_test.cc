// An owner-sharded source by commands of a local client: its steps, and what ends a view.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/executor_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LocalPlanId kPlan(9);
constexpr LocalPlanId kOther(4);

// Whether the data path queues.
class LocalSourceTest : public LocalExecutorTest, public ::testing::WithParamInterface<bool> {
 protected:
  LocalSourceTest() {
    if (GetParam()) path_->set_queues();
  }
  static LocalPrepareSource Stores(LocalPlanId plan) { return {plan, 3, true, true}; }
  static LocalPrepareSource InPlace(LocalPlanId plan) { return {plan, 3, false, false}; }
  std::string ReasonOf(const LocalOperation& operation) { return Do(operation).reason; }
  std::string Failing(const std::string& name, const LocalOperation& operation) {
    Fail(name, path_->LeaveEarly(AbortReason::kCancelled, Operation::kPrepareSource,
                                 executor_->last_sequence().Next()));
    std::string reason = ReasonOf(operation);
    path_->set_behaviour(nullptr);
    return reason;
  }
};

TEST_P(LocalSourceTest, TheStepsRunOnTheArenaAndThePlanIsGoodAtOnce) {
  ExpectOk(Stores(kPlan));
  EXPECT_EQ(*arena_.plan.sequence, 5u);
  EXPECT_EQ(path_->last_source().token_count, 3);
  EXPECT_EQ(path_->last_source().topk_experts, arena_.topk_experts);
  EXPECT_EQ(path_->last_source().hidden, arena_.hidden);
  EXPECT_EQ(path_->last_source().route_weights, arena_.route_weights);
  ExpectOk(LocalPrefetchWeights{kPlan, 0, 1});
  ExpectOk(LocalMaterialise{kPlan});
  ExpectOk(LocalRunExperts{kPlan, 0, 1, true});
  ExpectOk(LocalCombine{kPlan, true});
  EXPECT_THAT(path_->calls(), ElementsAre("prepare_source 5", "prefetch_weights 6", "materialise 7",
                                          "run_experts 0", "combine 8"));
  EXPECT_EQ(executor_->plan_count(), 1u);
}

TEST_P(LocalSourceTest, WhatIsNotCopiedLiesThere) {
  ExpectOk(InPlace(kPlan));
  EXPECT_EQ(path_->last_source().hidden, nullptr);
  EXPECT_EQ(path_->last_source().route_weights, nullptr);
  ExpectOk(LocalMaterialise{kPlan});
  ExpectOk(LocalMaterialise{kPlan});
  ExpectOk(LocalPrepareSource{kPlan, 2, true, false});
  EXPECT_EQ(path_->last_source().hidden, arena_.hidden);
  EXPECT_EQ(path_->last_source().route_weights, nullptr);
}

// A number may be another plan's by now, and the view's plan have several.
TEST_P(LocalSourceTest, AViewIsFoundByItsPlan) {
  EXPECT_EQ(ReasonOf(LocalMaterialise{kPlan}), "STALE_OBJECT");
  ExpectOk(InPlace(kPlan));
  ExpectOk(LocalClonePlan{kOther, kPlan});
  ExpectOk(LocalReleasePlan{kPlan});
  EXPECT_EQ(ReasonOf(LocalMaterialise{kPlan}), "STALE_OBJECT");
  ExpectOk(LocalMaterialise{kOther});
  ExpectOk(LocalDispatch{kOther, 2, false});
  EXPECT_THAT(std::string(Do(LocalMaterialise{kOther}).status.message()),
              HasSubstr("plan 4 of sequence 9 is of no source view that lives; that of sequence 6 "
                        "does"));
}

TEST_P(LocalSourceTest, AViewDiesWithTheNextAndItsPlanDoesNot) {
  ExpectOk(InPlace(kPlan));
  ExpectOk(InPlace(kOther));
  EXPECT_EQ(ReasonOf(LocalMaterialise{kPlan}), "STALE_OBJECT");
  ExpectOk(LocalMaterialise{kOther});
  ExpectOk(LocalDispatchWithPlan{kPlan, 2, false});
}

TEST_P(LocalSourceTest, OneThatEndsEarlyEndsTheLastViewWhereItStored) {
  ExpectOk(InPlace(kPlan));
  EXPECT_EQ(Failing("prepare_source", InPlace(kOther)), "CANCELLED");
  ExpectOk(LocalMaterialise{kPlan});
  EXPECT_EQ(executor_->plan_count(), 1u);
  EXPECT_EQ(Failing("prepare_source", Stores(kOther)), "CANCELLED");
  EXPECT_EQ(ReasonOf(LocalMaterialise{kPlan}), "STALE_OBJECT");
  ExpectOk(LocalDispatchWithPlan{kPlan, 2, false});
}

TEST_P(LocalSourceTest, AMaterialiseThatEndsEarlyLeavesNoRowsAndItsView) {
  ExpectOk(InPlace(kPlan));
  EXPECT_EQ(Failing("materialise", LocalMaterialise{kPlan}), "CANCELLED");
  EXPECT_EQ(objects_.rows().state, RowsState::kUndefined);
  EXPECT_EQ(ReasonOf(LocalCombine{kPlan, false}), "STALE_OBJECT");
  ExpectOk(LocalMaterialise{kPlan});
  ExpectOk(LocalCombine{kPlan, false});
}

TEST_P(LocalSourceTest, APreparedPublicationKeepsMaterialiseOut) {
  EXPECT_TRUE(tokens_.Grant(TokenHolder::kWorker, {1, 8}, absl::Minutes(60)).ok());
  ExpectOk(InPlace(kOther));
  ExpectOk(LocalPrepareDispatch{kPlan, 3});
  ExpectOk(LocalPreparePublication{kPlan, true, {}});
  EXPECT_EQ(ReasonOf(LocalMaterialise{kOther}), "PUBLICATION_PENDING");
  ExpectOk(InPlace(kOther));
  ExpectOk(LocalPublish{kPlan});
  ExpectOk(LocalMaterialise{kOther});
}

TEST_P(LocalSourceTest, AViewEndsWithItsAttachment) {
  ExpectOk(InPlace(kPlan));
  executor_->Clear();
  EXPECT_EQ(objects_.source().source, nullptr);
}

TEST_P(LocalSourceTest, WithoutStorageThereIsNone) {
  shape_.source_storage = false;
  for (const LocalOperation& step :
       {LocalOperation(InPlace(kPlan)), LocalOperation(LocalMaterialise{kPlan})}) {
    const LocalCompletion refused = Do(step);
    EXPECT_EQ(refused.reason, "INVALID_PROGRAM");
    EXPECT_THAT(std::string(refused.status.message()), HasSubstr("has no source storage"));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDataPath, LocalSourceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "queues" : "waits"; });

// What was begun behind one that fails has stored nothing, and made no view.
class QueuedSourceTest : public LocalSourceTest {};

TEST_P(QueuedSourceTest, ThoseBehindAFailureAreAsIfTheyWereNot) {
  ExpectOk(Stores(kPlan));
  Fail("barrier", path_->LeaveEarly(AbortReason::kDeclined, Operation::kBarrier, Sequence(6), 0));
  Begin(LocalBarrier{});
  Begin(Stores(kOther));
  Begin(LocalMaterialise{kOther});
  Begin(InPlace(kPlan));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(NextReason(), "DECLINED");
  path_->set_behaviour(nullptr);
  EXPECT_EQ(executor_->plan_count(), 1u);
  EXPECT_EQ(ReasonOf(LocalMaterialise{kOther}), "STALE_OBJECT");
  ExpectOk(LocalMaterialise{kPlan});
}

INSTANTIATE_TEST_SUITE_P(Queued, QueuedSourceTest, ::testing::Values(true));

}  // namespace
}  // namespace perigee
