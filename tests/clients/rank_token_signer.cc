#include "tests/clients/rank_token_signer.h"

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "server/publication/token_keys.h"
#include "server/store/master_key.h"
#include "server/store/sqlite_store.h"

namespace perigee {
namespace {

template <typename Value>
Value Need(absl::StatusOr<Value> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  PERIGEE_CHECK(value.ok());
  return *std::move(value);
}

}  // namespace

TokenSigner RankTokenSigner(ClientCluster& cluster, int32_t rank) {
  // An issue leads to the salt of its generation.
  const std::string request = absl::StrCat("signer-of-rank-", rank);
  Need(cluster.client().IssueTokens(cluster.buffer(), Generation(), RankId(rank), 1, request));
  // A copy: the coordinator has the database to itself. Nothing is written there now.
  const ScratchDirectory copy;
  for (const auto& file : std::filesystem::directory_iterator(cluster.data_dir())) {
    if (!absl::StrContains(file.path().filename().string(), "sqlite")) continue;
    std::filesystem::copy(file.path(), std::filesystem::path(copy.path()) / file.path().filename());
  }
  const auto store = Need(SqliteStore::Open(copy.path()));
  const absl::optional<StoredIssue> stored = Need(store->FindIssue(request));
  PERIGEE_CHECK(stored.has_value());
  const TokenIssue& issue = stored->issue;
  // It is there: nothing is made of the zeros.
  const TokenKeys keys(
      Need(LoadMasterKey(cluster.data_dir() + "/master.key", std::string(kMasterKeyBytes, 0))));
  return TokenSigner(keys.Derive(stored->salt, issue.group, issue.generation, issue.rank));
}

}  // namespace perigee
