// Publication tokens as users of a whole cluster see them: issued and counted through the command,
// granted to real workers, burnt with their generation, and in no log.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/lib/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/defaults.h"
#include "proto/support/publication_token.h"
#include "tests/integration/cluster_fixture.h"

namespace perigee {
namespace {

class TokensTest : public ClusterTest {
 protected:
  void SetUp() override {
    StartCluster(2, {"--dir", scratch() + "/kept"});
    auto client = Client::Connect({.address = address_});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    const auto group = client_->CreateGroup({.group_id = "g", .ranks = 2});
    ASSERT_TRUE(group.ok()) << group.status();
    generation_ = Generation(group->generation());
    BufferOptions options;
    options.buffer_id = "b";
    options.shape.set_tokens(4);
    options.shape.set_hidden(8);
    options.shape.set_topk(2);
    options.shape.set_experts(4);
    const auto buffer = client_->CreateBuffer(group->name(), options);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *buffer;
  }

  Result Tokens(std::vector<std::string> args) const {
    args.insert(args.begin(), "tokens");
    args.insert(args.end(), {"--address", address_});
    return RunPerigee(args);
  }
  v1::TokenLedger LedgerOf(Generation generation) {
    const auto ledger = client_->GetTokenLedger(
        absl::StrCat("tenants/default/groups/g/generations/", generation.value));
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return ledger.ok() ? *ledger : v1::TokenLedger();
  }
  // Everything that coordinator and workers have logged.
  std::string Logs() const {
    std::stringstream text;
    for (const auto& entry : std::filesystem::directory_iterator(scratch() + "/kept/logs")) {
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    }
    return text.str();
  }

  std::unique_ptr<Client> client_;
  Generation generation_;
  v1::Buffer buffer_;
};

TEST_F(TokensTest, AreIssuedCountedAndBurntWithTheirGeneration) {
  const Result issued =
      Tokens({"issue", "g/b", "--rank", "1", "--count", "3", "--request-id", "mine"});
  ASSERT_EQ(issued.status, 0) << issued.err;
  const std::vector<std::string> lines = Lines(issued.out);
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto token = DecodePublicationToken(absl::HexStringToBytes(lines[i]));
    ASSERT_TRUE(token) << lines[i];
    EXPECT_EQ(token->scope, MakeTokenScope("tenants/default/groups/g", generation_, RankId(1)));
    EXPECT_EQ(token->buffer, BufferId(buffer_.id()));
  }
  EXPECT_EQ(Tokens({"issue", "g/b", "--rank", "1", "--count", "3", "--request-id", "mine"}).out,
            issued.out);
  const Result wrong = Tokens({"issue", "g/b", "--rank", "2"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, ::testing::HasSubstr("rank is 2, expected 0 to 1"));

  v1::TokenLedger ledger = LedgerOf(generation_);
  ASSERT_EQ(ledger.ranks_size(), 2);
  EXPECT_EQ(ledger.ranks(0).granted(), kTokenSerials);
  EXPECT_EQ(ledger.ranks(1).granted(), 2 * kTokenSerials);
  EXPECT_EQ(ledger.ranks(1).issued(), 3u);
  for (const v1::RankTokens& rank : ledger.ranks()) {
    EXPECT_TRUE(rank.confirmed());
    EXPECT_EQ(rank.burnt(), 0u);
  }
  const Result table = Tokens({"ledger", absl::StrCat("g/", generation_.value)});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, ::testing::HasSubstr("GRANTED"));

  kill(worker_pids_[0], SIGKILL);
  ASSERT_TRUE(
      client_->WaitForNextGeneration("tenants/default/groups/g", generation_, kRecoveryTimeout)
          .ok());
  ledger = LedgerOf(generation_);
  ASSERT_EQ(ledger.ranks_size(), 2);
  EXPECT_EQ(ledger.ranks(0).burnt(), kTokenSerials);
  EXPECT_FALSE(ledger.ranks(0).confirmed()) << "it was killed";
  EXPECT_EQ(ledger.ranks(1).burnt(), 2 * kTokenSerials);
  EXPECT_TRUE(ledger.ranks(1).confirmed()) << "it has had its last word";

  const std::string logs = Logs();
  EXPECT_THAT(logs, ::testing::HasSubstr("grant_tokens"));
  for (const std::string& line : lines) {
    const std::string bytes = absl::HexStringToBytes(line);
    EXPECT_FALSE(absl::StrContains(logs, line)) << "a token stands in a log";
    EXPECT_FALSE(absl::StrContains(logs, bytes.substr(64))) << "a token stands in a log";
  }
}

}  // namespace
}  // namespace perigee
