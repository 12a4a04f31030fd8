#include "worker/publication/token_ledger.h"

#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

constexpr const char* kGroup = "tenants/default/groups/g";
constexpr BufferId kBuffer(5);

TokenKey KeyOf(unsigned char byte) {
  TokenKey key;
  key.fill(byte);
  return key;
}

class TokenLedgerTest : public ::testing::Test {
 protected:
  // As the coordinator signs one for this rank.
  PublicationToken MakeToken(uint64_t serial) {
    PublicationToken token;
    token.scope = scope;
    token.buffer = kBuffer;
    token.serial = serial;
    token.expiry = absl::Minutes(10);
    return token;
  }
  std::string Signed(const PublicationToken& token) { return signer.Sign(token); }
  void GrantToClients(uint64_t first, uint64_t count) {
    const absl::Status granted =
        ledger.Grant(TokenHolder::kClients, {first, count}, absl::Minutes(10));
    ASSERT_TRUE(granted.ok()) << granted;
  }
  // Held serials are spent, expired, or still good: no other.
  void ExpectCounts(uint64_t held, uint64_t spent, uint64_t expired) {
    const TokenCounts counts = ledger.counts();
    EXPECT_EQ(counts.held, held);
    EXPECT_EQ(counts.spent, spent);
    EXPECT_EQ(counts.expired, expired);
  }

  const TokenScope scope = MakeTokenScope(kGroup, Generation(7), RankId(2));
  FakeClock clock;
  TokenSigner signer{KeyOf(1)};
  std::atomic<int> lows = 0;
  TokenLedger ledger{scope, KeyOf(1), clock, [this] { ++lows; }};
};

TEST_F(TokenLedgerTest, ATokenIsSpentOnce) {
  GrantToClients(100, 70);
  for (const uint64_t serial : {100u, 163u, 164u, 169u}) {
    const std::string token = Signed(MakeToken(serial));
    EXPECT_EQ(ledger.Check(token, kBuffer), TokenRefusal::kNone);
    EXPECT_EQ(ledger.Check(token, kBuffer), TokenRefusal::kNone) << "looking spends nothing";
    EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kNone);
    EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kSpent);
    EXPECT_EQ(ledger.Check(token, kBuffer), TokenRefusal::kSpent);
  }
  ExpectCounts(70, 4, 0);
}

TEST_F(TokenLedgerTest, EveryRefusalHasItsReason) {
  GrantToClients(100, 70);
  const auto spend = [&](const PublicationToken& token) {
    return ledger.Spend(Signed(token), kBuffer);
  };
  PublicationToken token = MakeToken(99);
  EXPECT_EQ(spend(token), TokenRefusal::kUnknown) << "before the range";
  token = MakeToken(170);
  EXPECT_EQ(spend(token), TokenRefusal::kUnknown) << "behind the range";
  token = MakeToken(100);
  token.kind = static_cast<TokenKind>(9);
  EXPECT_EQ(spend(token), TokenRefusal::kUnknown) << "permits something else";
  token = MakeToken(100);
  token.scope.generation = Generation(6);
  EXPECT_EQ(spend(token), TokenRefusal::kStaleGeneration);
  token = MakeToken(100);
  token.scope.rank = RankId(1);
  EXPECT_EQ(spend(token), TokenRefusal::kWrongRank);
  token = MakeToken(100);
  token.buffer = BufferId(6);
  EXPECT_EQ(spend(token), TokenRefusal::kWrongBuffer);
  token = MakeToken(100);
  token.scope.group_hash ^= 1;
  EXPECT_EQ(spend(token), TokenRefusal::kForged);
  token = MakeToken(100);
  token.expiry = absl::ZeroDuration();
  EXPECT_EQ(spend(token), TokenRefusal::kExpired);
  EXPECT_EQ(ledger.Spend(TokenSigner(KeyOf(2)).Sign(MakeToken(100)), kBuffer),
            TokenRefusal::kForged);
  EXPECT_EQ(ledger.Spend("", kBuffer), TokenRefusal::kForged);
  ExpectCounts(70, 0, 0);
  EXPECT_EQ(spend(MakeToken(100)), TokenRefusal::kNone) << "no refusal has spent it";
}

TEST_F(TokenLedgerTest, AChangedBitIsNeverASuccess) {
  GrantToClients(100, 70);
  const std::string token = Signed(MakeToken(100));
  for (size_t bit = 0; bit < 8 * token.size(); ++bit) {
    std::string changed = token;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(ledger.Spend(changed, kBuffer), TokenRefusal::kNone) << "bit " << bit;
  }
  EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kNone);
}

TEST_F(TokenLedgerTest, ExpiresWithItsRangeOnTheLedgersOwnClock) {
  GrantToClients(100, 10);
  ASSERT_EQ(ledger.Spend(Signed(MakeToken(100)), kBuffer), TokenRefusal::kNone);
  clock.Advance(absl::Minutes(10) - absl::Nanoseconds(1));
  GrantToClients(110, 10);
  EXPECT_EQ(ledger.Spend(Signed(MakeToken(101)), kBuffer), TokenRefusal::kNone);
  clock.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(ledger.Spend(Signed(MakeToken(102)), kBuffer), TokenRefusal::kExpired);
  EXPECT_EQ(ledger.Spend(Signed(MakeToken(110)), kBuffer), TokenRefusal::kNone);
  ExpectCounts(20, 3, 8);
  EXPECT_EQ(ledger.Spend(Signed(MakeToken(102)), kBuffer), TokenRefusal::kExpired)
      << "what has expired is not unknown";
  PublicationToken longer = MakeToken(103);
  longer.expiry = absl::Hours(9);
  EXPECT_EQ(ledger.Spend(Signed(longer), kBuffer), TokenRefusal::kExpired);
}

TEST_F(TokenLedgerTest, AGrantThatComesTwiceForgetsNothing) {
  GrantToClients(100, 10);
  ASSERT_EQ(ledger.Spend(Signed(MakeToken(100)), kBuffer), TokenRefusal::kNone);
  GrantToClients(100, 10);
  EXPECT_EQ(ledger.Spend(Signed(MakeToken(100)), kBuffer), TokenRefusal::kSpent);
  ExpectCounts(10, 1, 0);
}

TEST_F(TokenLedgerTest, AGrantWithSerialsOfAnotherIsRefused) {
  GrantToClients(100, 10);
  const SerialRange wrong[] = {{95, 6},
                               {109, 5},
                               {102, 3},
                               {90, 40},
                               {100, 9},
                               {50, 0},
                               {1, TokenLedger::kMaxSerialsOfRange + 1},
                               {UINT64_MAX - 3, 9}};
  for (const SerialRange& range : wrong) {
    const absl::Status status = ledger.Grant(TokenHolder::kClients, range, absl::Minutes(1));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << range.first << " " << range.count;
  }
  EXPECT_FALSE(ledger.Grant(TokenHolder::kClients, {1, 1}, absl::ZeroDuration()).ok());
  ExpectCounts(10, 0, 0);
}

TEST_F(TokenLedgerTest, DrawsEachOfItsOwnSerialsOnceAndNeverAClients) {
  GrantToClients(100, 10);
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Draw(kBuffer).status()));
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {10, 5}, absl::Minutes(1)).ok());
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {20, 3}, absl::Minutes(1)).ok());
  std::set<std::string> drawn;
  for (int i = 0; i < 8; ++i) {
    const auto token = ledger.Draw(kBuffer);
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_LT(DecodePublicationToken(*token)->serial, 100u);
    EXPECT_TRUE(drawn.insert(*token).second);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Draw(kBuffer).status()));
  for (const std::string& token : drawn) {
    EXPECT_EQ(ledger.Spend(token, BufferId(6)), TokenRefusal::kWrongBuffer);
    EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kNone);
    EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kSpent);
  }
  ExpectCounts(18, 8, 0);
  EXPECT_EQ(ledger.counts().drawn, 8u);
}

TEST_F(TokenLedgerTest, DrawsNothingThatHasExpired) {
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {10, 5}, absl::Minutes(1)).ok());
  ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  clock.Advance(absl::Minutes(1));
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {20, 3}, absl::Minutes(1)).ok());
  EXPECT_EQ(DecodePublicationToken(*ledger.Draw(kBuffer))->serial, 20u);
  ExpectCounts(8, 0, 5);
}

TEST_F(TokenLedgerTest, AsksForMoreWhenAQuarterIsLeftAndAgainOnlyAfterASecond) {
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {1, 40}, absl::Minutes(9)).ok());
  for (int i = 0; i < 29; ++i) ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  EXPECT_EQ(lows, 0);
  ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  EXPECT_EQ(lows, 1);
  ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  EXPECT_EQ(lows, 1) << "it is on its way";
  clock.Advance(absl::Seconds(1));
  ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  EXPECT_EQ(lows, 2) << "it may have been lost";
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {100, 40}, absl::Minutes(9)).ok());
  ASSERT_TRUE(ledger.Draw(kBuffer).ok());
  EXPECT_EQ(lows, 2);
}

TEST_F(TokenLedgerTest, NothingIsGoodWhenTheGenerationIsOver) {
  GrantToClients(100, 10);
  ASSERT_TRUE(ledger.Grant(TokenHolder::kWorker, {10, 5}, absl::Minutes(1)).ok());
  const std::string drawn = *ledger.Draw(kBuffer);
  ASSERT_EQ(ledger.Spend(Signed(MakeToken(100)), kBuffer), TokenRefusal::kNone);
  ledger.Close();
  for (const std::string& token : {drawn, Signed(MakeToken(100)), Signed(MakeToken(101))}) {
    EXPECT_EQ(ledger.Spend(token, kBuffer), TokenRefusal::kStaleGeneration);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(ledger.Draw(kBuffer).status()));
  ExpectCounts(15, 1, 0);
}

// Several threads present the same tokens, draw and take grants at the same time: each serial is
// spent once. Run under the thread sanitizer too.
TEST_F(TokenLedgerTest, ManyThreadsSpendEachTokenOnce) {
  constexpr uint64_t kSerials = 2000;
  constexpr int kThreads = 4;
  GrantToClients(1, kSerials);
  std::vector<std::string> tokens;
  for (uint64_t serial = 1; serial <= kSerials; ++serial) {
    tokens.push_back(Signed(MakeToken(serial)));
  }
  std::atomic<uint64_t> spent = 0, wrong = 0, drawn = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (const std::string& token : tokens) {
          const TokenRefusal refusal = ledger.Spend(token, kBuffer);
          if (refusal == TokenRefusal::kNone) ++spent;
          if (refusal != TokenRefusal::kNone && refusal != TokenRefusal::kSpent) ++wrong;
        }
        const SerialRange own{10000 + 1000 * static_cast<uint64_t>(thread), 500};
        EXPECT_TRUE(ledger.Grant(TokenHolder::kWorker, own, absl::Minutes(1)).ok());
        for (int i = 0; i < 500; ++i) {
          const auto token = ledger.Draw(kBuffer);
          if (token.ok() && ledger.Spend(*token, kBuffer) == TokenRefusal::kNone) ++drawn;
          clock.Advance(absl::Milliseconds(1));
        }
        (void)ledger.counts();
      });
    }
  }
  EXPECT_EQ(spent, kSerials);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(drawn, 500u * kThreads);
  ExpectCounts(kSerials + 500 * kThreads, kSerials + 500 * kThreads, 0);
}

}  // namespace
}  // namespace perigee
