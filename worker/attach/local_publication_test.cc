// Direct publication by commands of a local client: its steps, and every way in which a use is
// refused.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/executor_fixture.h"

namespace perigee {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr LocalPlanId kPlan(9);

// Whether the data path queues.
class LocalPublicationTest : public LocalExecutorTest, public ::testing::WithParamInterface<bool> {
 protected:
  LocalPublicationTest() {
    if (GetParam()) path_->set_queues();
    EXPECT_TRUE(tokens_.Grant(TokenHolder::kWorker, {1, 8}, absl::Minutes(60)).ok());
    EXPECT_TRUE(tokens_.Grant(TokenHolder::kClients, {100, 10}, absl::Minutes(60)).ok());
  }

  PublicationToken Token(uint64_t serial) const {
    return {MakeTokenScope(group_.group, Generation(7), RankId(0)), BufferId(3), serial,
            TokenKind::kPublish, absl::Minutes(60)};
  }
  static PublicationTokenBytes Sign(const PublicationToken& token, TokenSigner signer) {
    const std::string text = signer.Sign(token);
    PublicationTokenBytes bytes{};
    text.copy(bytes.data(), bytes.size());
    return bytes;
  }
  static PublicationTokenBytes Sign(const PublicationToken& token) {
    return Sign(token, TokenSigner(TokenKey()));
  }
  static PublicationTokenBytes Forge(const PublicationToken& token) {
    return Sign(token, TokenSigner(TokenKey{1}));
  }
  void PrepareDispatch() { ExpectOk(LocalPrepareDispatch{kPlan, 3}); }
  void Prepare(const absl::optional<PublicationTokenBytes>& token = absl::nullopt) {
    ExpectOk(LocalPreparePublication{kPlan, true, token});
  }
  // The whole of one; the shard is free, and nobody is stuck.
  void ExpectPublishes() {
    PrepareDispatch();
    Prepare();
    ExpectOk(LocalStoreRows{kPlan});
    ExpectOk(LocalPublish{kPlan});
    ExpectOk(LocalCombine{kPlan, true});
  }
  std::string ReasonOf(const LocalOperation& operation) { return Do(operation).reason; }
};

TEST_P(LocalPublicationTest, TheStepsRunOnTheArenaAndSpendATokenOfTheRank) {
  PrepareDispatch();
  EXPECT_EQ(*arena_.plan.sequence, 5u) << "the producer finds its places";
  EXPECT_EQ(executor_->plan_count(), 0u);
  Prepare();
  ExpectOk(LocalStoreRows{kPlan});
  ExpectOk(LocalPublish{kPlan});
  EXPECT_EQ(executor_->plan_count(), 1u);
  ExpectOk(LocalRunExperts{kPlan, 0, 1, true});
  ExpectOk(LocalCombine{kPlan, true});
  EXPECT_THAT(path_->calls(),
              ElementsAre("prepare_dispatch 5", "prepare_publication 0", "store_rows 0",
                          "publish 6", "run_experts 0", "combine 7"));
  EXPECT_EQ(tokens_.counts().drawn, 1u);
  EXPECT_EQ(tokens_.counts().spent, 1u);
}

TEST_P(LocalPublicationTest, AClientsTokenIsSpentInsteadAndGoodOnce) {
  const PublicationTokenBytes token = Sign(Token(100));
  PrepareDispatch();
  Prepare(token);
  ExpectOk(LocalPublish{kPlan});
  EXPECT_EQ(tokens_.counts().drawn, 0u);
  EXPECT_EQ(tokens_.counts().spent, 1u);
  PrepareDispatch();
  EXPECT_EQ(ReasonOf(LocalPreparePublication{kPlan, true, token}), "SPENT");
  ExpectPublishes();
}

// By table: every reason why a token is refused reaches the client, and ends the target.
TEST_P(LocalPublicationTest, EveryRefusalOfATokenHasItsReason) {
  PublicationToken token = Token(200);
  std::vector<std::pair<std::string, PublicationTokenBytes>> cases;
  cases.emplace_back("UNKNOWN", Sign(token));
  token = Token(101);
  token.scope.generation = Generation(6);
  cases.emplace_back("STALE_GENERATION", Sign(token));
  token = Token(101);
  token.scope.rank = RankId(1);
  cases.emplace_back("WRONG_RANK", Sign(token));
  token = Token(101);
  token.buffer = BufferId(4);
  cases.emplace_back("WRONG_BUFFER", Sign(token));
  token = Token(102);
  token.expiry = absl::ZeroDuration();
  cases.emplace_back("EXPIRED", Sign(token));
  cases.emplace_back("FORGED", Forge(Token(103)));
  cases.emplace_back("FORGED", PublicationTokenBytes{});
  for (const auto& [reason, bytes] : cases) {
    SCOPED_TRACE(reason);
    PrepareDispatch();
    const LocalCompletion refused = Do(LocalPreparePublication{kPlan, true, bytes});
    EXPECT_EQ(refused.reason, reason);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.status.message()),
                EndsWith(absl::StrCat("publication token refused: ", reason)));
    EXPECT_EQ(ReasonOf(LocalPreparePublication{kPlan, true, {}}), "STALE_OBJECT");
    EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "STALE_OBJECT") << "and the others are told";
    EXPECT_THAT(path_->calls(),
                Contains(absl::StrCat("decline ", executor_->last_sequence().value)));
  }
  EXPECT_EQ(tokens_.counts().spent, 0u);
  ExpectPublishes();
}

TEST_P(LocalPublicationTest, APreparedPublicationHasTheShardForItself) {
  PrepareDispatch();
  Prepare();
  for (const LocalOperation& writer : {LocalOperation(LocalDispatch{LocalPlanId(1), 2, false}),
                                       LocalOperation(LocalPrepareDispatch{LocalPlanId(1), 2}),
                                       LocalOperation(LocalPreparePublication{kPlan, false, {}})}) {
    const LocalCompletion refused = Do(writer);
    EXPECT_EQ(refused.reason, "PUBLICATION_PENDING") << CommandName(KindOf(writer));
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(ReasonOf(LocalCombine{kPlan, false}), "STALE_OBJECT");
  // All were refused: nothing has changed.
  ExpectOk(LocalStoreRows{kPlan});
  ExpectOk(LocalPublish{kPlan});
  EXPECT_EQ(tokens_.counts().drawn, 1u);
}

TEST_P(LocalPublicationTest, StepsNeedThoseBeforeThemAndTheirTarget) {
  for (const LocalOperation& step :
       {LocalOperation(LocalStoreRows{kPlan}), LocalOperation(LocalPublish{kPlan}),
        LocalOperation(LocalPreparePublication{kPlan, true, {}})}) {
    EXPECT_EQ(ReasonOf(step), "STALE_OBJECT") << CommandName(KindOf(step));
  }
  PrepareDispatch();
  EXPECT_THAT(std::string(Do(LocalStoreRows{LocalPlanId(1)}).status.message()),
              HasSubstr("there is no target '1'"));
  EXPECT_THAT(std::string(Do(LocalPublish{kPlan}).status.message()), HasSubstr("not prepared"));
  PrepareDispatch();
  ExpectOk(LocalDispatch{LocalPlanId(1), 2, false});
  EXPECT_EQ(ReasonOf(LocalPreparePublication{kPlan, true, {}}), "STALE_OBJECT");
  PrepareDispatch();
  Prepare();
  ExpectOk(LocalPublish{kPlan});
  EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "STALE_OBJECT") << "a second time";
  ExpectOk(LocalCombine{kPlan, true});
}

// Good when it was prepared, and not when it is published: refused, and nothing is spent.
TEST_P(LocalPublicationTest, ATargetEndsWithItsToken) {
  PrepareDispatch();
  Prepare();
  clock_.Advance(absl::Minutes(61));
  const LocalCompletion late = Do(LocalPublish{kPlan});
  EXPECT_EQ(late.reason, "EXPIRED");
  EXPECT_EQ(late.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(path_->calls(), Not(Contains("publish 6")));
  EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "STALE_OBJECT");
  EXPECT_EQ(tokens_.counts().spent, 0u);
  EXPECT_EQ(tokens_.counts().expired, tokens_.counts().held);
  ExpectOk(LocalDispatch{kPlan, 2, false});
}

// Nobody has to publish it first: what is dead holds nothing up.
TEST_P(LocalPublicationTest, WhatAnExpiredTokenHeldIsFree) {
  PrepareDispatch();
  Prepare();
  EXPECT_EQ(ReasonOf(LocalDispatch{LocalPlanId(1), 2, false}), "PUBLICATION_PENDING");
  clock_.Advance(absl::Minutes(61));
  ExpectOk(LocalDispatch{LocalPlanId(1), 2, false});
  EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "STALE_OBJECT");
  ASSERT_TRUE(tokens_.Grant(TokenHolder::kWorker, {300, 8}, absl::Minutes(60)).ok());
  ExpectPublishes();
}

TEST_P(LocalPublicationTest, ATokenIsSpentWhateverBecomesOfItsPublication) {
  Fail("publish", path_->LeaveEarly(AbortReason::kCancelled, Operation::kPublish, Sequence(6)));
  PrepareDispatch();
  Prepare();
  EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "CANCELLED");
  EXPECT_EQ(tokens_.counts().spent, 1u);
  EXPECT_EQ(executor_->plan_count(), 0u);
  EXPECT_EQ(objects_.rows().state, RowsState::kUndefined);
  path_->set_behaviour(nullptr);
  ExpectPublishes();
}

TEST_P(LocalPublicationTest, AnOperationThatEndsEarlyEndsTheTarget) {
  Fail("barrier", path_->LeaveEarly(AbortReason::kDeclined, Operation::kBarrier, Sequence(6), 0));
  PrepareDispatch();
  Prepare();
  EXPECT_EQ(ReasonOf(LocalBarrier{}), "DECLINED");
  EXPECT_THAT(path_->calls(), Contains("drop_target"));
  EXPECT_EQ(ReasonOf(LocalPublish{kPlan}), "STALE_OBJECT");
  ExpectPublishes();
}

TEST_P(LocalPublicationTest, ATargetEndsWithItsAttachment) {
  PrepareDispatch();
  Prepare();
  executor_->Clear();
  EXPECT_THAT(path_->calls(), Contains("drop_target"));
  EXPECT_TRUE(objects_.CheckShardFree().ok());
}

INSTANTIATE_TEST_SUITE_P(EveryDataPath, LocalPublicationTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "queues" : "waits"; });

// What was begun behind a step that fails on the device has not been done, and the token is gone.
class QueuedPublicationTest : public LocalPublicationTest {};

TEST_P(QueuedPublicationTest, StepsBehindOneThatFailsAreNotDone) {
  ExpectOk(LocalDispatch{LocalPlanId(1), 2, false});
  path_->set_behaviour([this](const std::string& operation, Sequence) {
    if (operation != "prepare_dispatch") return FakeDataPath::Outcome();
    return path_->LeaveEarly(AbortReason::kBadRoute, Operation::kPrepareDispatch, Sequence(6), 0);
  });
  Begin(LocalPrepareDispatch{kPlan, 3});
  Begin(LocalPreparePublication{kPlan, true, {}});
  Begin(LocalStoreRows{kPlan});
  Begin(LocalPublish{kPlan});
  Begin(LocalCombine{kPlan, true});
  EXPECT_EQ(NextReason(), "BAD_ROUTE");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(NextReason(), "DECLINED");
  EXPECT_EQ(executor_->plan_count(), 1u);
  EXPECT_EQ(tokens_.counts().spent, 1u);
  EXPECT_EQ(objects_.rows().state, RowsState::kUndefined);
  path_->set_behaviour(nullptr);
  ExpectPublishes();
}

INSTANTIATE_TEST_SUITE_P(Queued, QueuedPublicationTest, ::testing::Values(true));

}  // namespace
}  // namespace perigee
