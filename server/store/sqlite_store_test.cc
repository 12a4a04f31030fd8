#include "server/store/sqlite_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string directory = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::string file = directory + "/perigee.sqlite3";
};

uint64_t Taken(Store& store) {
  auto value = store.TakeBufferId();
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : 0;
}

TEST_F(SqliteStoreTest, CountersGoUpByOneAndSurviveReopening) {
  for (uint64_t start = 1; start <= 3; ++start) {
    auto store = SqliteStore::Open(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->term(), start);
    EXPECT_EQ(Taken(**store), 2 * start - 1);
    EXPECT_EQ(Taken(**store), 2 * start);
    EXPECT_EQ((*store)->OpenGeneration("salt", 1, 1)->generation, Generation(start));
  }
}

TEST_F(SqliteStoreTest, TheDirectoryIsForItsOwnerOnly) {
  ASSERT_TRUE(SqliteStore::Open(directory).ok());
  struct stat info;
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

// A child takes numbers and writes each one down after Take has returned; then it is killed. What
// the next start takes must be above everything written down.
TEST_F(SqliteStoreTest, AKilledProcessNeverLeavesANumberToBeTakenAgain) {
  uint64_t highest = 0;
  for (int round = 0; round < 3; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      auto store = SqliteStore::Open(directory);
      while (store.ok()) {
        auto value = (*store)->TakeBufferId();
        if (!value.ok() || write(pipe_ends[1], &*value, sizeof(uint64_t)) < 0) break;
      }
      _exit(1);
    }
    close(pipe_ends[1]);
    uint64_t value = 0;
    const uint64_t before = highest;
    while (read(pipe_ends[0], &value, sizeof(value)) == sizeof(value)) {
      ASSERT_GT(value, highest);
      highest = value;
      if (highest == before + 20 + static_cast<uint64_t>(round)) kill(child, SIGKILL);
    }
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
  }
  auto store = SqliteStore::Open(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_GT(Taken(**store), highest);
  EXPECT_EQ((*store)->term(), 4u);
}

TEST_F(SqliteStoreTest, ManyThreadsNeverGetTheSameNumber) {
  auto store = SqliteStore::Open(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<std::vector<uint64_t>> taken(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : taken) {
      threads.emplace_back([&] {
        for (int i = 0; i < 25; ++i) mine.push_back(Taken(**store));
      });
    }
  }
  std::set<uint64_t> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(*all.rbegin(), 100u);
}

TEST_F(SqliteStoreTest, ASecondProcessIsRefusedWhileTheFirstHasIt) {
  auto first = SqliteStore::Open(directory);
  ASSERT_TRUE(first.ok()) << first.status();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const absl::Status status = SqliteStore::Open(directory).status();
    const bool clear =
        absl::IsUnavailable(status) &&
        status.message().find("in use by another process") != absl::string_view::npos;
    _exit(clear ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Taken(**first), 1u);
}

TEST_F(SqliteStoreTest, ADamagedFileIsDataLossNamingThePath) {
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  std::ofstream(file) << std::string(8192, 'x');
  const absl::Status status = SqliteStore::Open(directory).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
}

TEST_F(SqliteStoreTest, APageOverwrittenIsDataLoss) {
  {
    auto store = SqliteStore::Open(directory);
    ASSERT_TRUE(store.ok()) << store.status();
  }
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(4096);
  out << std::string(4096, '\xee');
  out.close();
  EXPECT_TRUE(absl::IsDataLoss(SqliteStore::Open(directory).status()));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseAndANewerSchemaAreRefused) {
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  const auto run = [&](const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
  };
  run("PRAGMA application_id=7");
  EXPECT_TRUE(absl::IsDataLoss(SqliteStore::Open(directory).status()));
  run("PRAGMA application_id=1346720327; PRAGMA user_version=9");
  const absl::Status newer = SqliteStore::Open(directory).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(newer)) << newer;
  EXPECT_THAT(std::string(newer.message()), HasSubstr("schema version 9"));
}

TEST_F(SqliteStoreTest, ADirectoryThatCannotBeUsedIsNamed) {
  EXPECT_TRUE(absl::IsInvalidArgument(SqliteStore::Open("").status()));
  const absl::Status missing = SqliteStore::Open(directory + "/deeper").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(directory + "/deeper"));

  std::ofstream(directory) << "a file";
  const absl::Status is_file = SqliteStore::Open(directory).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(is_file)) << is_file;
  EXPECT_THAT(std::string(is_file.message()), HasSubstr("Not a directory"));
}

TEST_F(SqliteStoreTest, ADirectoryThatCannotBeWrittenIsPermissionDenied) {
  ASSERT_EQ(mkdir(directory.c_str(), 0500), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Permissions do not bind root.
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    const absl::Status status = SqliteStore::Open(directory).status();
    _exit(absl::IsPermissionDenied(status) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "cannot leave root";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace perigee
