#include "server/store/master_key.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MasterKeyTest : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path.c_str()); }

  const std::string fresh = std::string(31, 'k') + '\0';
  const std::string path = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(MasterKeyTest, IsMadeOnceForItsOwnerAlone) {
  const auto made = LoadMasterKey(path, fresh);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, fresh);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(*LoadMasterKey(path, std::string(32, 'x')), fresh) << "the second start reads it";
}

TEST_F(MasterKeyTest, OneThatOthersMayReadIsRefusedAndNamed) {
  ASSERT_TRUE(LoadMasterKey(path, fresh).ok());
  for (const mode_t mode : {0640u, 0604u, 0620u, 0610u, 0666u}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const absl::Status status = LoadMasterKey(path, fresh).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("kkkk")));
  }
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(LoadMasterKey(path, fresh).ok());
}

TEST_F(MasterKeyTest, WhatIsNoKeyIsRefused) {
  std::ofstream(path) << std::string(31, 'k');
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(LoadMasterKey(path, fresh).status())) << "too short";
  std::ofstream(path) << std::string(33, 'k');
  EXPECT_TRUE(absl::IsFailedPrecondition(LoadMasterKey(path, fresh).status())) << "too long";
  unlink(path.c_str());
  ASSERT_EQ(symlink("/dev/zero", path.c_str()), 0);
  EXPECT_FALSE(LoadMasterKey(path, fresh).ok()) << "a link";
  unlink(path.c_str());
  EXPECT_FALSE(LoadMasterKey("/", fresh).ok()) << "a directory";
  const absl::Status missing = LoadMasterKey(path + "/deeper/key", fresh).status();
  EXPECT_TRUE(absl::IsUnavailable(missing)) << missing;
}

}  // namespace
}  // namespace perigee
