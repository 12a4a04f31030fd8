// Programs that publish directly: what the steps need of each other, and what a publication token
// has to be.
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/publication/token_ledger.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrepareDispatch[] =
    R"(operations { prepare_dispatch { topk_experts: "t" target: "a" } })";
constexpr char kPrepare[] =
    R"(operations { prepare_publication { target: "a" route_weights: "w" } })";
constexpr char kStoreRows[] = R"(operations { store_rows { target: "a" hidden: "x" } })";
constexpr char kPublish[] = R"(operations { publish { target: "a" plan: "p" } })";

class PublicationProgramTest : public ProgramRunnerTest {
 protected:
  PublicationProgramTest() {
    ledger_ = &tokens_;
    EXPECT_TRUE(tokens_.Grant(TokenHolder::kWorker, {1, 4}, absl::Minutes(60)).ok());
    EXPECT_TRUE(tokens_.Grant(TokenHolder::kClients, {100, 10}, absl::Minutes(60)).ok());
  }

  static TokenKey Key(unsigned char byte) {
    TokenKey key;
    key.fill(byte);
    return key;
  }
  PublicationToken Token(uint64_t serial) {
    return {MakeTokenScope(group_.group, Generation(7), RankId(0)), BufferId(3), serial,
            TokenKind::kPublish, absl::Minutes(60)};
  }
  static std::string With(const std::string& token) {
    return absl::StrCat(R"(operations { prepare_publication { target: "a" tokens: ")",
                        absl::CHexEscape(token), R"(" } })");
  }
  std::string Steps() { return absl::StrCat(kPrepareDispatch, kPrepare, kStoreRows, kPublish); }
  void ExpectRefused(const ProgramOutcome& outcome, const std::string& reason, uint64_t publish) {
    EXPECT_EQ(outcome.status.reason(), reason) << outcome.status.message();
    EXPECT_THAT(outcome.status.message(),
                testing::EndsWith(absl::StrCat("publication token refused: ", reason)));
    EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(path_->calls(), Contains("drop_target").Times(++refused_));
    EXPECT_THAT(path_->calls(), Not(Contains(absl::StrCat("publish ", publish))));
    EXPECT_THAT(path_->calls(), Contains(absl::StrCat("decline ", publish)))
        << "the others are told";
  }

  int refused_ = 0;
  TokenSigner signer_{Key(1)};
  TokenLedger tokens_{MakeTokenScope(group_.group, Generation(7), RankId(0)), Key(1), clock_,
                      nullptr};
};

TEST_F(PublicationProgramTest, TheStepsRunInOrderAndSpendATokenOfTheRank) {
  const ProgramOutcome outcome = Run(absl::StrCat(Steps(), kCombine));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(), ElementsAre("prepare_dispatch 1", "prepare_publication 0",
                                          "store_rows 0", "publish 2", "combine 3"));
  EXPECT_EQ(outcome.progress.plan().token_count(), 3);
  EXPECT_EQ(tokens_.counts().drawn, 1u);
  EXPECT_EQ(tokens_.counts().spent, 1u);
}

TEST_F(PublicationProgramTest, IterationsDrawATokenEachUntilNoneIsLeft) {
  EXPECT_EQ(Run(Steps() + " iterations: 4").status.code(), 0);
  EXPECT_EQ(tokens_.counts().spent, 4u);
  const ProgramOutcome none = Run(Steps(), 9);
  EXPECT_EQ(none.status.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(path_->calls(), Contains("decline 10"));
}

TEST_F(PublicationProgramTest, AClientsTokenIsGoodOnce) {
  const std::string token = signer_.Sign(Token(100));
  const std::string steps = absl::StrCat(kPrepareDispatch, With(token), kStoreRows, kPublish);
  EXPECT_EQ(Run(steps).status.code(), 0);
  EXPECT_EQ(tokens_.counts().drawn, 0u);
  EXPECT_EQ(Run(steps, 3).status.reason(), "SPENT");
  EXPECT_EQ(Run(Steps(), 5).status.code(), 0) << "the shard is free for others";
}

// By table: every reason why a token is refused reaches the caller.
TEST_F(PublicationProgramTest, EveryRefusalReachesTheCaller) {
  std::vector<std::pair<std::string, std::string>> cases;
  PublicationToken token = Token(200);
  cases.emplace_back("UNKNOWN", signer_.Sign(token));
  token = Token(101);
  token.scope.generation = Generation(6);
  cases.emplace_back("STALE_GENERATION", signer_.Sign(token));
  token = Token(101);
  token.scope.rank = RankId(1);
  cases.emplace_back("WRONG_RANK", signer_.Sign(token));
  token = Token(101);
  token.buffer = BufferId(4);
  cases.emplace_back("WRONG_BUFFER", signer_.Sign(token));
  token = Token(102);
  token.expiry = absl::ZeroDuration();
  cases.emplace_back("EXPIRED", signer_.Sign(token));
  cases.emplace_back("FORGED", TokenSigner(Key(2)).Sign(Token(103)));
  cases.emplace_back("FORGED", "no token");
  const std::string spent = signer_.Sign(Token(104));
  ASSERT_EQ(tokens_.Spend(spent, BufferId(3)), TokenRefusal::kNone);
  cases.emplace_back("SPENT", spent);
  for (const auto& [reason, bytes] : cases) {
    SCOPED_TRACE(reason);
    const uint64_t first = objects_.last_sequence().value + 1;
    const std::string steps = absl::StrCat(kPrepareDispatch, With(bytes), kStoreRows, kPublish);
    ExpectRefused(Run(steps, first), reason, first + 1);
  }
}

// Good when it was prepared, and not when it is published.
TEST_F(PublicationProgramTest, APreparedTokenMayExpire) {
  EXPECT_EQ(Run(absl::StrCat(kPrepareDispatch, kPrepare, kStoreRows)).status.code(), 0);
  clock_.Advance(absl::Minutes(61));
  ExpectRefused(Run(kPublish, 2), "EXPIRED", 2);
  EXPECT_EQ(Run(kDispatch, 3).status.code(), 0) << "the shard is free for others";
}

TEST_F(PublicationProgramTest, ATokenIsSpentWhateverBecomesOfItsPublication) {
  Fail("publish", Leave(AbortReason::kCancelled, Operation::kPublish, 2));
  const ProgramOutcome outcome = Run(Steps());
  EXPECT_EQ(outcome.status.reason(), "CANCELLED");
  EXPECT_EQ(outcome.status.operation_error().operation(), "publish");
  EXPECT_EQ(tokens_.counts().spent, 1u);
  EXPECT_EQ(Run(kPublish, 3).status.reason(), "STALE_OBJECT");
  EXPECT_THAT(Run(kCombine, 4).status.message(), HasSubstr("there is no plan 'p'"));
}

TEST_F(PublicationProgramTest, StepsNeedThoseBeforeThem) {
  EXPECT_EQ(Run(kPublish).status.reason(), "STALE_OBJECT");
  EXPECT_EQ(Run(kPrepare, 2).status.reason(), "STALE_OBJECT");
  EXPECT_EQ(Run(kStoreRows, 2).status.reason(), "STALE_OBJECT");
  const ProgramOutcome unprepared = Run(absl::StrCat(kPrepareDispatch, kPublish), 2);
  EXPECT_EQ(unprepared.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(unprepared.status.message(), HasSubstr("is not prepared"));
  const ProgramOutcome replaced = Run(absl::StrCat(kPrepareDispatch, kDispatch, kPrepare), 4);
  EXPECT_EQ(replaced.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(replaced.status.message(), HasSubstr("there is no target 'a'; the shard holds rows"));
  EXPECT_EQ(tokens_.counts().spent, 0u);
  EXPECT_EQ(Run(Steps(), 6).status.code(), 0);
  EXPECT_EQ(Run(kPublish, 8).status.reason(), "STALE_OBJECT") << "a second time";
}

TEST_F(PublicationProgramTest, APreparedPublicationHasTheShardForItself) {
  for (const char* writer : {kDispatch, kPrepareDispatch, "operations { probe_copy {} }"}) {
    SCOPED_TRACE(writer);
    const uint64_t first = objects_.last_sequence().value + 1;
    const ProgramOutcome outcome =
        Run(absl::StrCat(kPrepareDispatch, kPrepare, writer, kPublish), first);
    EXPECT_EQ(outcome.status.reason(), "PUBLICATION_PENDING") << outcome.status.message();
    EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_EQ(tokens_.counts().spent, 0u);
}

TEST_F(PublicationProgramTest, WhatProgramsAreNot) {
  const auto message = [this](const std::string& text) {
    const ProgramOutcome outcome = Run(text);
    EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
    return outcome.status.message();
  };
  EXPECT_THAT(
      message(R"(operations { prepare_publication { target: "a" tokens: "" tokens: "" } })"),
      HasSubstr("there are 2 tokens, expected none or one of each of 1 ranks"));
  EXPECT_THAT(message(R"(operations { publish { target: "a" } })"), HasSubstr("plan"));
  EXPECT_THAT(
      message(absl::StrCat(kStoreRows, R"(operations { combine { plan: "p" output: "x" } })")),
      HasSubstr("output 'x' is also an input"));
  Write("x", v1::TENSOR_DTYPE_BFLOAT16, {2, 8});
  EXPECT_THAT(Run(Steps()).status.message(), HasSubstr("expected"));
}

TEST_F(PublicationProgramTest, WhereNothingCanBePublishedDirectlyItSaysSo) {
  ledger_ = nullptr;
  const ProgramOutcome outcome = Run(Steps());
  EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(outcome.status.message(), HasSubstr("expected an ordinary dispatch"));
}

}  // namespace
}  // namespace perigee
