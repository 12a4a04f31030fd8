#include "server/groups/group_tokens.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/support/defaults.h"
#include "server/groups/group_harness.h"
#include "server/groups/lost_command.h"

namespace perigee {
namespace {

constexpr auto kGrant = v1::WorkerCommand::kGrantTokens;
constexpr auto kReport = v1::WorkerCommand::kReportTokens;

class GroupTokensTest : public ::testing::Test {
 protected:
  void Want(CallId call, int32_t rank, uint64_t count = 1, uint64_t generation = 0) {
    group.Do(TokensWanted{call, GroupHarness::BufferNamed("b"), Generation(generation), rank, count,
                          "request", "fingerprint"});
  }
  v1::IssueTokensResponse Issued(CallId call) {
    const CallResult& result = group.finished.at(call);
    EXPECT_TRUE(result.status.ok()) << result.status;
    const auto* response = std::get_if<v1::IssueTokensResponse>(&result.response);
    return response == nullptr ? v1::IssueTokensResponse() : *response;
  }
  // What the workers say of themselves.
  void AnswerCounts(v1::WorkerCommand::CommandCase kind, const v1::TokenCounts& counts) {
    for (const SendCommand& command : group.Take(kind)) {
      CommandAnswered answer{command.token, {}};
      *answer.result.mutable_tokens() = counts;
      group.Do(answer);
    }
  }
  v1::TokenLedger LedgerOf(CallId call) {
    return std::get<v1::TokenLedger>(group.finished.at(call).response);
  }
  void ReportLow(const std::string& worker, uint64_t generation = 1) {
    TokensReported report{worker, {}};
    report.report.set_generation(generation);
    group.Do(report);
  }

  GroupHarness group;
};

TEST_F(GroupTokensTest, AGenerationOpensWithKeyAndSerialsForEachRank) {
  group.Create(2);
  group.Do(GenerationTaken{Generation(1), group.MakeFirstTokens()});
  const auto opens = group.Take(v1::WorkerCommand::kOpenSession);
  ASSERT_EQ(opens.size(), 2u);
  std::vector<v1::TokenGrant> grants;
  for (const SendCommand& open : opens) grants.push_back(open.command.open_session().tokens());
  EXPECT_EQ(grants[0].first_serial(), 1u);
  EXPECT_EQ(grants[1].first_serial(), 9u);
  EXPECT_NE(grants[0].key(), grants[1].key());
  for (const v1::TokenGrant& grant : grants) {
    EXPECT_EQ(grant.key().size(), kTokenKeyBytes);
    EXPECT_EQ(grant.count(), GroupHarness::kSerials);
    EXPECT_EQ(grant.holder(), v1::TokenGrant::WORKER);
    EXPECT_EQ(grant.life().seconds(), absl::ToInt64Seconds(kTokenLife));
  }
}

TEST_F(GroupTokensTest, TokensAreIssuedOfARangeThatTheWorkerHasAndOnceThatIsDurable) {
  group.Start(2);
  Want(10, 1, 2);
  EXPECT_TRUE(group.Take(kGrant).empty()) << "not before it is durable";
  group.GiveSerials();
  const auto grants = group.Take(kGrant);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].rank, 1);
  EXPECT_EQ(grants[0].command.grant_tokens().holder(), v1::TokenGrant::CLIENTS);
  EXPECT_TRUE(group.to_record.empty()) << "the worker has not taken it";
  group.Answer(grants[0]);
  EXPECT_EQ(group.finished.count(10), 0u) << "not recorded yet";
  ASSERT_EQ(group.to_record.size(), 1u);
  EXPECT_EQ(group.to_record[0].issue.request_id, "request");
  group.Record(absl::OkStatus());

  const v1::IssueTokensResponse response = Issued(10);
  ASSERT_EQ(response.tokens_size(), 2);
  EXPECT_EQ(response.worker(), "workers/w1");
  EXPECT_EQ(response.first_serial(), grants[0].command.grant_tokens().first_serial());
  for (int i = 0; i < 2; ++i) {
    const auto token = DecodePublicationToken(response.tokens(i));
    ASSERT_TRUE(token);
    EXPECT_EQ(token->scope, MakeTokenScope(GroupHarness::kGroup, Generation(1), RankId(1)));
    EXPECT_EQ(token->buffer, BufferId(group.buffer("b").id()));
    EXPECT_EQ(token->serial, response.first_serial() + static_cast<uint64_t>(i));
    // The key of rank 1 is the second that the harness made.
    EXPECT_TRUE(TokenSigner(TokenKey{2}).Verify(response.tokens(i)));
  }
  Want(11, 1);
  group.Settle();
  EXPECT_EQ(Issued(11).first_serial(), response.first_serial() + 2) << "of the same range";
}

TEST_F(GroupTokensTest, TheNextRangeIsOnItsWayBeforeTheLastIsUsedUp) {
  group.Start(1);
  Want(10, 0, 6);
  group.Settle();
  EXPECT_EQ(Issued(10).tokens_size(), 6);
  Want(11, 0, 3);
  EXPECT_EQ(group.to_record.size(), 1u) << "it is there already";
  group.Settle();
  EXPECT_GT(Issued(11).first_serial(), Issued(10).first_serial() + 6) << "two left over are burnt";
}

TEST_F(GroupTokensTest, WhatIsNotRecordedIsNotGivenAway) {
  group.Start(1);
  Want(10, 0);
  group.GiveSerials();
  group.AnswerAll(kGrant);
  group.Record(absl::UnavailableError("disk"));
  EXPECT_TRUE(absl::IsUnavailable(group.finished.at(10).status));
  Want(11, 0);
  group.Settle();
  EXPECT_EQ(Issued(11).first_serial(), 10u) << "9 is never issued again";
}

TEST_F(GroupTokensTest, AGrantThatIsLostIsBurntAndItsCallersToldWhere) {
  group.Start(1);
  Want(10, 0);
  group.GiveSerials();
  const auto grants = group.Take(kGrant);
  group.Answer(grants[0], LostCommandResult("grant_tokens").status());
  EXPECT_TRUE(absl::IsUnavailable(group.finished.at(10).status));
  EXPECT_NE(group.finished.at(10).status.message().find("workers/w0"), absl::string_view::npos);
  Want(11, 0);
  group.Settle();
  EXPECT_GT(Issued(11).first_serial(),
            grants[0].command.grant_tokens().first_serial() + GroupHarness::kSerials - 1);
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
}

TEST_F(GroupTokensTest, AWorkerThatDoesNotAnswerKeepsNobodyWaiting) {
  group.Start(1);
  Want(10, 0);
  group.GiveSerials();
  group.Wait(kFormingTimeout);
  EXPECT_TRUE(absl::IsUnavailable(group.finished.at(10).status));
}

TEST_F(GroupTokensTest, ALowRankIsSuppliedOnceForAllItsWords) {
  group.Start(2);
  ReportLow("workers/w1");
  ReportLow("workers/w1");
  ASSERT_EQ(group.serials_wanted.size(), 1u);
  group.GiveSerials();
  ReportLow("workers/w1");
  const auto grants = group.Take(kGrant);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].rank, 1);
  EXPECT_EQ(grants[0].command.grant_tokens().holder(), v1::TokenGrant::WORKER);
  EXPECT_TRUE(grants[0].command.grant_tokens().key().empty());
  group.Answer(grants[0]);
  EXPECT_TRUE(group.serials_wanted.empty());
  ReportLow("workers/w1");
  EXPECT_EQ(group.serials_wanted.size(), 1u);
  ReportLow("workers/w0", 7);
  EXPECT_EQ(group.serials_wanted.size(), 1u) << "of another generation";
}

TEST_F(GroupTokensTest, ASupplyIsRenewedBeforeItExpires) {
  group.Start(1);
  group.Wait(kTokenLife / 4 * 3);
  ASSERT_EQ(group.serials_wanted.size(), 1u);
  group.GiveSerials(absl::UnavailableError("disk"));
  EXPECT_TRUE(group.serials_wanted.empty());
  group.Wait(absl::Seconds(1));
  ASSERT_EQ(group.serials_wanted.size(), 1u) << "tried again";
  group.GiveSerials();
  group.AnswerAll(kGrant);
  EXPECT_LE(group.machine.NextDeadline(), group.now.monotonic + kTokenLife / 4 * 3);
}

TEST_F(GroupTokensTest, RefusesWhatCannotBe) {
  group.Start(2);
  Want(10, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(group.finished.at(10).status));
  Want(11, 0, 1, 9);
  EXPECT_TRUE(absl::IsFailedPrecondition(group.finished.at(11).status));
  group.Do(TokensWanted{12, GroupHarness::BufferNamed("c"), {}, 0, 1, "request", ""});
  EXPECT_TRUE(absl::IsNotFound(group.finished.at(12).status));
  group.Do(LedgerWanted{13, Generation(9)});
  EXPECT_TRUE(absl::IsNotFound(group.finished.at(13).status));
}

TEST_F(GroupTokensTest, TheLedgerAddsUpWhatTheWorkersSay) {
  group.Start(2);
  Want(10, 0, 3);
  group.Settle();
  group.Do(LedgerWanted{11, Generation(1)});
  v1::TokenCounts counts;
  counts.set_held(14);  // of 16: two never arrived
  counts.set_drawn(5);
  counts.set_spent(4);
  counts.set_expired(3);
  auto asked = group.Take(kReport);
  ASSERT_EQ(asked.size(), 2u);
  CommandAnswered answer{asked[0].token, {}};
  *answer.result.mutable_tokens() = counts;
  group.Do(answer);
  EXPECT_EQ(group.finished.count(11), 0u);
  group.Answer(asked[1], Failed(absl::StatusCode::kUnavailable, "COMMAND_LOST", "lost"));
  const v1::TokenLedger ledger = LedgerOf(11);
  ASSERT_EQ(ledger.ranks_size(), 2);
  EXPECT_EQ(ledger.name(), "tenants/default/groups/g/generations/1");
  EXPECT_EQ(ledger.ranks(0).granted(), 16u);
  EXPECT_EQ(ledger.ranks(0).issued(), 3u);
  EXPECT_EQ(ledger.ranks(0).drawn(), 5u);
  EXPECT_EQ(ledger.ranks(0).spent(), 4u);
  EXPECT_EQ(ledger.ranks(0).burnt(), 5u);
  EXPECT_TRUE(ledger.ranks(0).confirmed());
  EXPECT_EQ(ledger.ranks(1).granted(), 8u);
  EXPECT_EQ(ledger.ranks(1).burnt(), 0u);
  EXPECT_FALSE(ledger.ranks(1).confirmed());
}

TEST_F(GroupTokensTest, WhenAGenerationEndsAllThatIsNotSpentIsBurnt) {
  group.Start(2);
  Want(10, 0);
  group.Do(LedgerWanted{11, Generation(1)});
  v1::TokenCounts early;
  early.set_held(8);
  early.set_spent(5);
  CommandAnswered answer{group.Take(kReport)[0].token, {}};
  *answer.result.mutable_tokens() = early;
  group.Do(answer);
  group.Lose(1);
  EXPECT_TRUE(absl::IsUnavailable(group.finished.at(10).status));
  EXPECT_TRUE(LedgerOf(11).ranks(0).confirmed());
  EXPECT_EQ(LedgerOf(11).ranks(0).spent(), 5u);
  EXPECT_FALSE(LedgerOf(11).ranks(1).confirmed());
  EXPECT_TRUE(group.Seen<LedgerClosed>().empty()) << "rank 0 has not had its last word";
  v1::TokenCounts counts;
  counts.set_held(8);
  counts.set_spent(6);
  AnswerCounts(v1::WorkerCommand::kAbortGeneration, counts);
  const auto closed = group.Seen<LedgerClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].generation, Generation(1));
  EXPECT_EQ(closed[0].ledger.ranks(0).spent(), 6u);
  EXPECT_EQ(closed[0].ledger.ranks(0).burnt(), 2u);
  EXPECT_TRUE(closed[0].ledger.ranks(0).confirmed());
  EXPECT_EQ(closed[0].ledger.ranks(1).burnt(), 8u);
  EXPECT_FALSE(closed[0].ledger.ranks(1).confirmed());
  // What the store says too late is of no use to the next generation.
  group.GiveSerials();
  EXPECT_TRUE(group.Take(kGrant).empty());
}

TEST_F(GroupTokensTest, ADrainedGroupEndsWithItsLedger) {
  group.Start(1);
  group.Do(GroupDrained{20, false});
  v1::TokenCounts counts;
  counts.set_held(8);
  counts.set_spent(8);
  AnswerCounts(v1::WorkerCommand::kCloseSession, counts);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  const auto closed = group.Seen<LedgerClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].ledger.ranks(0).burnt(), 0u);
}

}  // namespace
}  // namespace perigee
