#include "client/cli/cluster/run_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

bool Exists(const std::string& path) { return std::filesystem::exists(path); }
void Touch(const std::string& path) { std::ofstream(path) << "x"; }

TEST(RunDirectoryTest, IsPrivateShortAndGoesWhole) {
  const auto directory = RunDirectory::Create("");
  ASSERT_TRUE(directory.ok()) << directory.status();
  struct stat found;
  ASSERT_EQ(stat(directory->temporary().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  EXPECT_LT(absl::StrCat(directory->socket_dir(), "/w127-0123456789abcdef.sock").size(), 108u);
  Touch(directory->LogPath("w0"));
  Touch(directory->data_dir() + "/file");
  RunDirectory::Remove(directory->temporary());
  EXPECT_FALSE(Exists(directory->temporary()));
  RunDirectory::Remove(directory->temporary());  // once more is fine
}

TEST(RunDirectoryTest, WhatTheUserNamesStays) {
  const std::string kept = absl::StrCat(testing::TempDir(), "/kept");
  const auto directory = RunDirectory::Create(kept);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT(directory->data_dir(), HasSubstr(kept));
  EXPECT_THAT(directory->socket_dir(), testing::Not(HasSubstr(kept)));
  Touch(directory->data_dir() + "/file");
  RunDirectory::Remove(directory->temporary());
  EXPECT_TRUE(Exists(kept + "/data/file"));
}

TEST(RunDirectoryTest, TwoClustersDoNotShareOne) {
  const std::string kept = absl::StrCat(testing::TempDir(), "/shared");
  {
    const auto first = RunDirectory::Create(kept);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = RunDirectory::Create(kept);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
    RunDirectory::Remove(first->temporary());
  }
  const auto later = RunDirectory::Create(kept);
  ASSERT_TRUE(later.ok()) << later.status();
  RunDirectory::Remove(later->temporary());
}

TEST(RunDirectoryTest, APlaceThatCannotBeMadeIsNamed) {
  const auto directory = RunDirectory::Create("/nonexistent/cluster");
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr("/nonexistent/cluster"));
}

TEST(RunDirectoryTest, OnlyTheLostWorkersSocketsGo) {
  const auto directory = RunDirectory::Create("");
  ASSERT_TRUE(directory.ok()) << directory.status();
  const std::string sockets = directory->socket_dir();
  for (const char* name : {"/w1-aa.sock", "/w1-bb.sock", "/w11-aa.sock"}) Touch(sockets + name);
  directory->RemoveSockets("w1");
  EXPECT_THAT(std::vector(std::filesystem::directory_iterator(sockets), {}), SizeIs(1));
  EXPECT_TRUE(Exists(sockets + "/w11-aa.sock"));
  RunDirectory::Remove(directory->temporary());
}

TEST(LastLineTest, SkipsEmptyOnes) {
  const std::string path = absl::StrCat(testing::TempDir(), "/log");
  std::ofstream(path) << "first\nlast\n\n";
  EXPECT_EQ(LastLine(path), "last");
  EXPECT_EQ(LastLine(path + ".none"), "");
}

}  // namespace
}  // namespace perigee
