#include "client/cli/run/layer_path.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/layer_file.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadLayerPath, NamesAreThoseOfPaths) {
  EXPECT_THAT(LayerPathNames(),
              ElementsAre("auto", "ordinary", "direct", "direct_overlapped", "pull"));
  const auto path = ReadLayerPath("direct_overlapped", "");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->path, DispatchPath::kDirectOverlapped);
  EXPECT_FALSE(path->table.has_value());
  EXPECT_TRUE(path->asked_for);
  EXPECT_THAT(std::string(ReadLayerPath("fast", "").status().message()),
              HasSubstr("there is no path 'fast'"));
}

TEST(ReadLayerPath, AutoReadsItsTable) {
  const std::string file = absl::StrCat(testing::TempDir(), "/layer_path_", getpid());
  EXPECT_EQ(ReadLayerPath("auto", file).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(PathTable().Write(file).ok());
  const auto path = ReadLayerPath("auto", file);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(path->table.has_value());
  std::remove(file.c_str());
}

class ChooseLayerPathTest : public testing::Test {
 protected:
  ChooseLayerPathTest()
      : file_(LayerFile::Random({.ranks = 2, .tokens = 6, .experts = 4}, 1)),
        path_(absl::StrCat(testing::TempDir(), "/layer_path_", getpid(), ".safetensors")) {
    EXPECT_TRUE(file_.Write(path_).ok());
  }
  ~ChooseLayerPathTest() override { std::remove(path_.c_str()); }

  // Costs that speak for every other path.
  PathTable Table(int32_t ranks) const {
    PathCell cell;
    cell.machine = machine_;
    cell.shape = {12 / ranks, 16, 2, 4, ranks, 8, 3, 0};
    cell.home_imbalance = HomeImbalanceOf(file_.topk_experts, 4, ranks);
    cell.costs = {100, 80, 100, 20, 10};
    PathTable table;
    table.Put(cell);
    return table;
  }

  // As in the table.
  static LayerBuffer Buffer(int32_t ranks) { return {ranks, 8, 3}; }

  const LayerFile file_;
  const std::string path_;
  const PathMachine machine_ = {"a device", 1, "host"};
};

TEST_F(ChooseLayerPathTest, WhatWasAskedForIsTaken) {
  const auto input = LayerInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  const PathChoice choice =
      ChooseLayerPath(*ReadLayerPath("direct", ""), machine_, *input, Buffer(2));
  EXPECT_EQ(choice.path, DispatchPath::kDirect);
  EXPECT_EQ(choice.reason, "it was asked for");
  EXPECT_EQ(choice.basis, PathBasis::kAskedFor);
}

TEST_F(ChooseLayerPathTest, NobodyHasAskedForTheDefault) {
  const auto input = LayerInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  const PathChoice choice = ChooseLayerPath(LayerPath(), machine_, *input, Buffer(2));
  EXPECT_EQ(choice.path, DispatchPath::kOrdinary);
  EXPECT_EQ(choice.reason, "it is the default, and no path was asked for");
  EXPECT_EQ(choice.basis, PathBasis::kDefault);
}

// Whatever the table says of producers: the file's tokens have none.
TEST_F(ChooseLayerPathTest, ByATableNoPathOfAProducerIsTaken) {
  const auto input = LayerInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  const PathChoice choice =
      ChooseLayerPath({DispatchPath::kOrdinary, Table(2)}, machine_, *input, Buffer(2));
  EXPECT_EQ(choice.path, DispatchPath::kPull);
  EXPECT_EQ(choice.basis, PathBasis::kMeasured);
  EXPECT_THAT(choice.reason, HasSubstr("pull takes 80.0 us where ordinary takes 100.0 us"));
  const PathChoice other =
      ChooseLayerPath({DispatchPath::kOrdinary, Table(2)}, machine_, *input, Buffer(4));
  EXPECT_EQ(other.path, DispatchPath::kOrdinary);
  EXPECT_EQ(other.basis, PathBasis::kNotMeasured);
  EXPECT_THAT(other.reason, HasSubstr("nothing was measured for S3,H16,K2,E4,P8,B3 on 4 ranks"));
  const PathChoice more_slots =
      ChooseLayerPath({DispatchPath::kOrdinary, Table(2)}, machine_, *input, {2, 8, 4});
  EXPECT_EQ(more_slots.path, DispatchPath::kOrdinary) << "another buffer";
}

}  // namespace
}  // namespace perigee
