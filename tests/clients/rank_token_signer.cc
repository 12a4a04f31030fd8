#include "tests/clients/rank_token_signer.h"

#include <filesystem>
#include <string>
#include <system_error>
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

// In a copy: the coordinator has the database to itself. What it writes in the middle of one, as it
// seldom does here, makes that copy useless, and the next one serves.
absl::optional<StoredIssue> FindIssue(const std::string& data_dir, const std::string& request) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const ScratchDirectory copy;
    for (const auto& file : std::filesystem::directory_iterator(data_dir)) {
      const std::filesystem::path name = file.path().filename();
      if (!absl::StrContains(name.string(), "sqlite")) continue;
      std::error_code ignored;  // a file that is gone by now
      std::filesystem::copy(file.path(), std::filesystem::path(copy.path()) / name, ignored);
    }
    const auto store = SqliteStore::Open(copy.path());
    if (!store.ok()) continue;
    auto stored = (*store)->FindIssue(request);
    if (stored.ok() && stored->has_value()) return *std::move(stored);
  }
  return absl::nullopt;
}

}  // namespace

TokenSigner RankTokenSigner(ClientCluster& cluster, int32_t rank) {
  // An issue leads to the salt of its generation.
  const std::string request = absl::StrCat("signer-of-rank-", rank);
  Need(cluster.client().IssueTokens(cluster.buffer(), Generation(), RankId(rank), 1, request));
  const absl::optional<StoredIssue> stored = FindIssue(cluster.data_dir(), request);
  PERIGEE_CHECK(stored.has_value());
  const TokenIssue& issue = stored->issue;
  // It is there: nothing is made of the zeros.
  const TokenKeys keys(
      Need(LoadMasterKey(cluster.data_dir() + "/master.key", std::string(kMasterKeyBytes, 0))));
  return TokenSigner(keys.Derive(stored->salt, issue.group, issue.generation, issue.rank));
}

}  // namespace perigee
