#include "client/cli/describe_path.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/lib/path_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class DescribePathTest : public testing::Test {
 protected:
  DescribePathTest() : path_(absl::StrCat(testing::TempDir(), "/describe_path_", getpid())) {
    PathTable table;
    for (const char* device : {"GPU A", "GPU B"}) {
      PathCell cell;
      cell.machine = {device, 4, "cuda", "nvlink", 16, 0};
      cell.shape = {64, 128, 2, 8, 4, 128, 2, 0};
      cell.routes = "skew 1";
      cell.home_imbalance = 1.2;
      cell.costs.dispatch_us = 100;
      cell.costs.pull_us = device[4] == 'A' ? 60 : 160;
      table.Put(cell);
    }
    EXPECT_TRUE(table.Write(path_).ok());
  }
  ~DescribePathTest() override { std::remove(path_.c_str()); }

  // Exit status; out_ and err_ have what was printed.
  int Run(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--path-table", path_, "--ranks", "4"};
    args.insert(args.end(), more.begin(), more.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = DescribePath(args);
    fflush(stdout);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }

  const std::string path_;
  std::string out_, err_;
};

TEST_F(DescribePathTest, SaysForEachMachineWhatIsTakenAndWhy) {
  ASSERT_EQ(Run({"--shape", "S64,H128,K2,E8", "--imbalance", "1.2"}), kDone) << err_;
  EXPECT_EQ(out_,
            "S64,H128,K2,E8,P128,B2 on 4 ranks, home imbalance 1.2\n\n"
            "machine:  4 x GPU A (cuda, nvlink, SMs 16, local SMs default)\n"
            "path:     pull\n"
            "because:  pull takes 60.0 us where ordinary takes 100.0 us, at home imbalance 1.2\n\n"
            "machine:  4 x GPU B (cuda, nvlink, SMs 16, local SMs default)\n"
            "path:     ordinary\n"
            "because:  direct was not measured near home imbalance 1.2; direct_overlapped was not "
            "measured near home imbalance 1.2; pull takes 160.0 us where ordinary takes 100.0 us, "
            "at home imbalance 1.2\n");
}

TEST_F(DescribePathTest, WhatTheSidesCannotDoIsLeftOut) {
  ASSERT_EQ(Run({"--shape", "S64,H128,K2,E8", "--imbalance", "1.2", "--no-pull", "--no-direct",
                 "--json"}),
            kDone);
  EXPECT_THAT(out_, HasSubstr("\"path\": \"ordinary\""));
  EXPECT_THAT(out_, HasSubstr("the producer cannot write in place, and the consumer cannot"));
}

TEST_F(DescribePathTest, OtherShapesWereNotMeasured) {
  ASSERT_EQ(Run({"--shape", "S64,H256,K2,E8"}), kDone);
  EXPECT_THAT(out_, HasSubstr("nothing was measured for S64,H256,K2,E8,P128,B2 on 4 ranks"));
  ASSERT_EQ(Run({"--shape", "S64,H128,K2,E8,P16"}), kDone);
  EXPECT_THAT(out_, HasSubstr("nothing was measured for S64,H128,K2,E8,P16,B2 on 4 ranks"));
  ASSERT_EQ(Run({"--shape", "S64,H128,K2,E8", "--ring-slots", "4"}), kDone);
  EXPECT_THAT(out_, HasSubstr("nothing was measured for S64,H128,K2,E8,P128,B2 with rings of 4"));
}

TEST_F(DescribePathTest, WrongUseAndBrokenTablesAreNamed) {
  EXPECT_EQ(Run({"--shape", "S64"}), kWrongUse);
  EXPECT_THAT(err_, HasSubstr("--shape S64: H (elements of a row) is missing"));
  std::ofstream(path_) << "{}";
  EXPECT_EQ(Run({"--shape", "S64,H128,K2,E8"}), kFailed);
  EXPECT_THAT(err_, HasSubstr("line 1: there is no \"format\", expected a string"));
  std::remove(path_.c_str());
  EXPECT_EQ(Run({"--shape", "S64,H128,K2,E8"}), kFailed);
  EXPECT_THAT(err_, HasSubstr("cannot read path table"));
}

}  // namespace
}  // namespace perigee
