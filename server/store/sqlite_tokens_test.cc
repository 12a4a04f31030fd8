// What the store keeps of publication tokens.
#include <sqlite3.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/store/sqlite_store.h"

namespace perigee {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000000);
const absl::Time kLongAgo = kNow - absl::Hours(1);

class SqliteTokensTest : public ::testing::Test {
 protected:
  SqliteTokensTest() { Reopen(); }
  void Reopen() {
    store.reset();
    auto opened = SqliteStore::Open(directory);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store = *std::move(opened);
  }

  const std::string directory = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::unique_ptr<SqliteStore> store;
};

TokenIssue MakeIssue(const std::string& request_id, Generation generation) {
  TokenIssue issue;
  issue.request_id = request_id;
  issue.fingerprint = std::string("\0bytes", 6);
  issue.group = "tenants/default/groups/g";
  issue.generation = generation;
  issue.rank = RankId(2);
  issue.buffer = BufferId(9);
  issue.serials = {17, 3};
  issue.expiry = absl::Minutes(7);
  return issue;
}

TEST_F(SqliteTokensTest, NoSerialIsInTwoRangesAcrossStarts) {
  uint64_t last = 0;
  for (int start = 0; start < 3; ++start) {
    const auto opened = store->OpenGeneration("salt", 3, 100);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->generation, Generation(static_cast<uint64_t>(start) + 1));
    ASSERT_EQ(opened->serials.size(), 3u);
    for (const SerialRange& range : opened->serials) {
      EXPECT_EQ(range, (SerialRange{last + 1, 100}));
      last += 100;
    }
    const auto more = store->TakeSerials(7);
    ASSERT_TRUE(more.ok()) << more.status();
    EXPECT_EQ(*more, (SerialRange{last + 1, 7}));
    last += 7;
    Reopen();
  }
}

TEST_F(SqliteTokensTest, AnIssueComesBackWithItsSaltAfterARestart) {
  const std::string salt("\0salt\xff", 6);
  const Generation generation = store->OpenGeneration(salt, 1, 10)->generation;
  EXPECT_FALSE(*store->FindIssue("one"));
  ASSERT_TRUE(store->RecordIssue(MakeIssue("one", generation), kNow, kLongAgo).ok());
  Reopen();
  const auto found = store->FindIssue("one");
  ASSERT_TRUE(found.ok() && *found) << found.status();
  const TokenIssue& issue = (*found)->issue;
  const TokenIssue expected = MakeIssue("one", generation);
  EXPECT_EQ((*found)->salt, salt);
  EXPECT_EQ(issue.fingerprint, expected.fingerprint);
  EXPECT_EQ(issue.group, expected.group);
  EXPECT_EQ(issue.generation, generation);
  EXPECT_EQ(issue.rank, expected.rank);
  EXPECT_EQ(issue.buffer, expected.buffer);
  EXPECT_EQ(issue.serials, expected.serials);
  EXPECT_EQ(issue.expiry, expected.expiry);
  EXPECT_FALSE(*store->FindIssue("two"));
}

TEST_F(SqliteTokensTest, ARequestIsPutDownOnceAndForgottenInTime) {
  const Generation generation = store->OpenGeneration("salt", 1, 10)->generation;
  ASSERT_TRUE(store->RecordIssue(MakeIssue("one", generation), kNow, kLongAgo).ok());
  const absl::Status again = store->RecordIssue(MakeIssue("one", generation), kNow, kLongAgo);
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  ASSERT_TRUE(store->RecordIssue(MakeIssue("two", generation), kNow + absl::Hours(1), kNow).ok());
  EXPECT_TRUE(*store->FindIssue("one")) << "just as old as may be";
  ASSERT_TRUE(store
                  ->RecordIssue(MakeIssue("three", generation), kNow + absl::Hours(1),
                                kNow + absl::Seconds(1))
                  .ok());
  EXPECT_FALSE(*store->FindIssue("one"));
  EXPECT_TRUE(*store->FindIssue("two"));
}

TEST_F(SqliteTokensTest, AFileOfAnEarlierVersionGoesOn) {
  EXPECT_EQ(store->OpenGeneration("salt", 1, 9)->generation, Generation(1));
  store.reset();
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((directory + "/perigee.sqlite3").c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database,
                         "DROP TABLE token_issues; DROP TABLE token_salts;"
                         "DELETE FROM counters WHERE name='serial'; PRAGMA user_version=1",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  Reopen();
  const auto opened = store->OpenGeneration("salt", 1, 5);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->generation, Generation(2));
  EXPECT_EQ(opened->serials[0], (SerialRange{1, 5}));
}

}  // namespace
}  // namespace perigee
