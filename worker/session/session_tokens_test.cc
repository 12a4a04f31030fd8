#include "worker/session/session_tokens.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

class SessionTokensTest : public ::testing::Test {
 protected:
  static v1::TokenGrant MakeGrant(uint64_t first, uint64_t count, v1::TokenGrant::Holder holder) {
    v1::TokenGrant grant;
    grant.set_first_serial(first);
    grant.set_count(count);
    grant.set_holder(holder);
    grant.mutable_life()->set_seconds(1);
    grant.mutable_life()->set_nanos(500000000);
    return grant;
  }
  static v1::OpenSessionCommand MakeOpen() {
    v1::OpenSessionCommand command;
    *command.mutable_tokens() = MakeGrant(1, 10, v1::TokenGrant::WORKER);
    command.mutable_tokens()->set_key(std::string(kTokenKeyBytes, 'k'));
    return command;
  }

  const TokenScope scope = MakeTokenScope("tenants/default/groups/g", Generation(7), RankId(0));
  FakeClock clock;
};

TEST_F(SessionTokensTest, OpensWithKeyAndSerialsAndTakesMore) {
  auto ledger = OpenTokenLedger(scope, MakeOpen(), clock, nullptr);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  ASSERT_TRUE(TakeGrant(**ledger, MakeGrant(11, 5, v1::TokenGrant::CLIENTS)).ok());
  const auto drawn = (*ledger)->Draw(BufferId(1));
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  TokenKey key;
  key.fill('k');
  EXPECT_TRUE(TokenSigner(key).Verify(*drawn));
  EXPECT_EQ((*ledger)->Spend(*drawn, BufferId(1)), TokenRefusal::kNone);
  clock.Advance(absl::Milliseconds(1499));
  EXPECT_EQ(CountsOf(**ledger).expired(), 0u);
  clock.Advance(absl::Milliseconds(1));
  const v1::TokenCounts counts = CountsOf(**ledger);
  EXPECT_EQ(counts.held(), 15u);
  EXPECT_EQ(counts.drawn(), 1u);
  EXPECT_EQ(counts.spent(), 1u);
  EXPECT_EQ(counts.expired(), 14u);
}

TEST_F(SessionTokensTest, WithoutAGrantNothingIsGood) {
  auto ledger = OpenTokenLedger(scope, {}, clock, nullptr);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_TRUE(absl::IsResourceExhausted((*ledger)->Draw(BufferId(1)).status()));
  PublicationToken token;
  token.scope = scope;
  EXPECT_EQ((*ledger)->Spend(TokenSigner(TokenKey()).Sign(token), BufferId(0)),
            TokenRefusal::kForged);
}

TEST_F(SessionTokensTest, RefusesWhatIsNoGrant) {
  v1::OpenSessionCommand command = MakeOpen();
  command.mutable_tokens()->set_key("short");
  const absl::Status key = OpenTokenLedger(scope, command, clock, nullptr).status();
  EXPECT_TRUE(absl::IsInvalidArgument(key)) << key;
  EXPECT_EQ(key.message().find("short"), absl::string_view::npos) << "a key is never said";
  command = MakeOpen();
  command.mutable_tokens()->set_holder(v1::TokenGrant::HOLDER_UNSPECIFIED);
  EXPECT_TRUE(absl::IsInvalidArgument(OpenTokenLedger(scope, command, clock, nullptr).status()));
  command = MakeOpen();
  command.mutable_tokens()->clear_count();
  EXPECT_TRUE(absl::IsInvalidArgument(OpenTokenLedger(scope, command, clock, nullptr).status()));
}

}  // namespace
}  // namespace perigee
