// `perigee run moe-layer` with a cluster of its own: results, sizes, and what it refuses.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/lib/path_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/testing/layer_file.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LayerRunTest : public ClusterTest {
 protected:
  Result RunLayer(const std::string& input, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"run", "moe-layer", "--input", input};
    args.insert(args.end(), more.begin(), more.end());
    return RunPerigee(args);
  }
  std::string Written(const LayerFile& file) const {
    const std::string path = absl::StrCat(scratch(), "/layer.safetensors");
    EXPECT_TRUE(file.Write(path).ok());
    return path;
  }
  static void ExpectOneLine(const Result& result) {
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Lines(result.err), testing::SizeIs(1)) << result.err;
  }
};

MATCHER(Passes, "") {
  *result_listener << "status " << arg.status << "\n" << arg.out << arg.err;
  return arg.status == 0 && absl::EndsWith(arg.out, "\nPASS\n");
}

TEST_F(LayerRunTest, TheLayerOfTheRepositoryPassesOnEightWorkers) {
  const Result result = RunLayer(kLayerPath, {"--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_LE(json.at("relative_error").number_value(), 5e-3);
  const auto& ranks = json.at("per_rank").list_value();
  ASSERT_EQ(ranks.values_size(), 8);
  double sent = 0, received = 0, home = 0;
  for (const auto& value : ranks.values()) {
    const auto rank = value.struct_value().fields();
    EXPECT_EQ(rank.at("balanced_load").number_value(), 2048) << "256 tokens with 8 routes each";
    EXPECT_LE(rank.at("replicas").number_value(), 8);
    home += rank.at("home_load").number_value();
    sent += rank.at("rows_sent").number_value();
    received += rank.at("rows_received").number_value();
    EXPECT_EQ(rank.at("phases").list_value().values_size(), 4);
  }
  EXPECT_EQ(home, 8 * 2048);
  EXPECT_EQ(sent, received);
  EXPECT_GT(sent, 0);
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration())) << "when the command has ended";
}

TEST_F(LayerRunTest, AnyRankCountThatDividesPasses) {
  for (const char* ranks : {"1", "2", "4"}) {
    EXPECT_THAT(RunLayer(kLayerPath, {"--ranks", ranks, "--token-padding", "16"}), Passes());
  }
}

TEST_F(LayerRunTest, PaddingAndSlotsDoNotChangeTheResult) {
  EXPECT_THAT(RunLayer(kLayerPath, {"--token-padding", "1", "--slots", "0"}), Passes());
  EXPECT_THAT(RunLayer(kLayerPath, {"--slots", "4", "--iterations", "3"}), Passes());
  EXPECT_THAT(RunLayer(kLayerPath, {"--ranks", "4", "--slots", "20", "--threads", "2"}), Passes());
}

TEST_F(LayerRunTest, OddSplitsPass) {
  const LayerFile file = LayerFile::Random(
      {.ranks = 3, .tokens = 5, .hidden = 24, .topk = 3, .experts = 15, .intermediate = 40}, 7);
  const std::string path = Written(file);
  for (const char* ranks : {"1", "3", "5"}) {
    EXPECT_THAT(RunLayer(path, {"--ranks", ranks, "--token-padding", "3"}), Passes());
  }
}

TEST_F(LayerRunTest, OneHotExpertPasses) {
  LayerFile file = LayerFile::Random({.ranks = 4, .tokens = 9, .topk = 1, .experts = 8}, 3);
  for (int32_t& expert : file.topk_experts) expert = 5;
  file.ComputeExpected();
  EXPECT_THAT(RunLayer(Written(file)), Passes());
}

TEST_F(LayerRunTest, NoTokensPass) {
  EXPECT_THAT(RunLayer(Written(LayerFile::Random({.ranks = 2, .tokens = 0}, 3))), Passes());
}

TEST_F(LayerRunTest, NaNsComeOutWhereTheyAreExpectedAndNowhereElse) {
  LayerFile file = LayerFile::Random({.ranks = 2, .tokens = 8}, 5);
  for (int32_t h = 0; h < 16; ++h) {
    file.hidden[3 * 16 + h] = ToBFloat16(std::numeric_limits<float>::quiet_NaN());
  }
  file.topk_experts[3 * 2] = 1;
  file.ComputeExpected();
  ASSERT_TRUE(std::isnan(file.expected[3 * 16]));
  EXPECT_THAT(RunLayer(Written(file)), Passes());
  // The same output against a file that does not expect it.
  for (int32_t h = 0; h < 16; ++h) file.expected[3 * 16 + h] = 0;
  const Result result = RunLayer(Written(file));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("FAIL"));
}

TEST_F(LayerRunTest, AWrongExpectationFails) {
  LayerFile file = LayerFile::Random({}, 5);
  file.expected[0] += 1;
  const Result result = RunLayer(Written(file));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nFAIL\n"));
}

TEST_F(LayerRunTest, RowsComeFromTheirOwnersWithTheSameResult) {
  EXPECT_THAT(RunLayer(kLayerPath, {"--source", "--iterations", "2"}), Passes());
  EXPECT_THAT(RunLayer(kLayerPath, {"--source", "--ranks", "2", "--slots", "0"}), Passes());
}

TEST_F(LayerRunTest, EveryPathGivesTheSameResult) {
  for (const char* path : {"direct", "direct_overlapped", "pull"}) {
    const Result result = RunLayer(kLayerPath, {"--path", path, "--ranks", "2"});
    EXPECT_THAT(result, Passes());
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("Rows took path ", path, ": it was asked for")));
  }
  EXPECT_THAT(RunLayer(kLayerPath, {"--ranks", "2"}).out,
              HasSubstr("Rows took path ordinary: it is the default, and no path was asked for"));
}

// Given a table that says so of this machine, this shape and these routes.
TEST_F(LayerRunTest, APathIsChosenByMeasuredCosts) {
  const std::string table_path = absl::StrCat(scratch(), "/paths.jsonl");
  ASSERT_EQ(RunPerigee({"bench", "dispatch", "--shape", "S8,H16,K2,E4", "--iterations", "1",
                        "--calibrate", table_path})
                .status,
            0);
  auto table = PathTable::Read(table_path);
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<std::string> automatic = {"--ranks",      "2",        "--path", "auto",
                                              "--path-table", table_path, "--json"};
  Result result = RunLayer(kLayerPath, automatic);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto unknown = ParseJson(result.out).fields();
  EXPECT_EQ(unknown.at("path").string_value(), "ordinary");
  EXPECT_THAT(unknown.at("path_reason").string_value(), HasSubstr("1 are of this machine"));

  PathCell cell = table->cells().at(0);
  cell.shape.tokens = static_cast<int32_t>(unknown.at("tokens").number_value() / 2);
  cell.shape.hidden = static_cast<int32_t>(unknown.at("hidden").number_value());
  cell.shape.topk = static_cast<int32_t>(unknown.at("topk").number_value());
  cell.shape.experts = static_cast<int32_t>(unknown.at("experts").number_value());
  double most = 0, all = 0;
  for (const auto& value : unknown.at("per_rank").list_value().values()) {
    const double load = value.struct_value().fields().at("home_load").number_value();
    most = std::max(most, load);
    all += load;
  }
  cell.shape.slots = static_cast<int32_t>(unknown.at("slots").number_value());
  cell.shape.token_padding = static_cast<int32_t>(unknown.at("token_padding").number_value());
  cell.home_imbalance = most * 2 / all;
  cell.costs.dispatch_us = 1000;
  cell.costs.pull_us = 1;
  table->Put(cell);
  ASSERT_TRUE(table->Write(table_path).ok());
  result = RunLayer(kLayerPath, automatic);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto known = ParseJson(result.out).fields();
  EXPECT_EQ(known.at("path").string_value(), "pull");
  EXPECT_THAT(known.at("path_reason").string_value(), HasSubstr("pull takes 1.0 us"));
  EXPECT_EQ(known.at("result").string_value(), "PASS");
}

TEST_F(LayerRunTest, NothingIsClaimedWithoutAnExpectation) {
  LayerFile file = LayerFile::Random({}, 5);
  file.expected.clear();
  const Result result = RunLayer(Written(file));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing was compared"));
  EXPECT_THAT(result.out, Not(HasSubstr("PASS")));
}

TEST_F(LayerRunTest, RankCountsThatDoNotDivideAreWrongUse) {
  Result result = RunLayer(kLayerPath, {"--ranks", "3"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("does not divide the 2048 tokens"));
  const std::string path = Written(LayerFile::Random({.ranks = 3, .tokens = 2, .experts = 4}, 5));
  result = RunLayer(path);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("does not divide the 4 experts"));
}

TEST_F(LayerRunTest, FilesThatAreNoLayerAreRefusedInOneLine) {
  const LayerFile file = LayerFile::Random({}, 5);
  const std::string path = Written(file);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  Result result = RunLayer(path);
  EXPECT_EQ(result.status, 1);
  ExpectOneLine(result);

  std::vector<TensorSource> tensors = file.Tensors();
  tensors[0].dtype = TensorDtype::kF16;
  ASSERT_TRUE(WriteTensorFile(path, tensors, {}).ok());
  result = RunLayer(path);
  EXPECT_EQ(result.status, 1);
  ExpectOneLine(result);
  EXPECT_THAT(result.err, HasSubstr("expected BF16"));

  result = RunLayer(scratch() + "/absent.safetensors");
  EXPECT_EQ(result.status, 1);
  ExpectOneLine(result);
}

TEST_F(LayerRunTest, IdsOutOfRangeAreNamed) {
  LayerFile file = LayerFile::Random({}, 5);
  file.topk_experts[5] = 99;
  const Result result = RunLayer(Written(file));
  EXPECT_EQ(result.status, 1);
  ExpectOneLine(result);
  EXPECT_THAT(result.err, HasSubstr("rank 0, token 2, k 1 is 99"));
}

TEST_F(LayerRunTest, AnAddressWhereNobodyListensIsNamed) {
  const Result result = RunLayer(kLayerPath, {"--address", "127.0.0.1:1"});
  EXPECT_EQ(result.status, 1);
  ExpectOneLine(result);
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1"));
}

TEST_F(LayerRunTest, WrongUseTakesFewLines) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"run"},
           {"run", "other"},
           {"run", "moe-layer"},
           {"run", "moe-layer", "--input", kLayerPath, "--on-loss", "panic"},
           {"run", "moe-layer", "--input", kLayerPath, "--iterations", "0"},
           {"run", "moe-layer", "--input", kLayerPath, "--address", "a:1", "--threads", "2"},
           {"run", "moe-layer", "--input", kLayerPath, "--address", "a:1", "--shared-gpu"},
           {"run", "moe-layer", "--input", kLayerPath, "--shared-gpu"},
           {"run", "moe-layer", "--input", kLayerPath, "--direct", "--source"},
           {"run", "moe-layer", "--input", kLayerPath, "--path", "auto"},
           {"run", "moe-layer", "--input", kLayerPath, "--path", "fast"},
           {"run", "moe-layer", "--input", kLayerPath, "--path-table", "t"},
           {"run", "moe-layer", "--input", kLayerPath, "--memory-handle", "fd"},
           {"run", "moe-layer", "--input", kLayerPath, "--backend", "cuda", "--memory-handle", "x"},
       }) {
    const Result result = RunPerigee(args);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Lines(result.err), testing::SizeIs(testing::Le(6)));
  }
}

TEST_F(LayerRunTest, WithoutADeviceCudaIsWrongUse) {
  const CudaDevices devices = QueryCudaDevices();
  if (!devices.devices.empty()) GTEST_SKIP() << "this machine has a device";
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--ranks", "1"}, {"--shared-gpu"}}) {
    std::vector<std::string> args = {"--backend", "cuda"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = RunLayer(kLayerPath, args);
    EXPECT_EQ(result.status, 2) << result.err;
    ExpectOneLine(result);
    EXPECT_THAT(result.err, HasSubstr("backend cuda: " + DescribeCudaDevices(devices)));
  }
}

}  // namespace
}  // namespace perigee
