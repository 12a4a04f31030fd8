#include "client/cli/plan_command.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "client/cli/run_cli.h"
#include "kernels/plan/plan.h"
#include "proto/support/tensor_file.h"

namespace perigee {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

class PlanCommandTest : public ::testing::Test {
 protected:
  PlanCommandTest()
      : directory_(::testing::TempDir() + "/" +
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~PlanCommandTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(absl::Span<const TensorSource> tensors) const {
    const absl::Status status = WriteTensorFile(Path("in"), tensors, {});
    ASSERT_TRUE(status.ok()) << status;
  }
  void WriteRoutes(std::vector<int64_t> shape, const std::vector<int32_t>& topk_experts) const {
    Write({{"topk_experts", TensorDtype::kI32, std::move(shape), BytesOf(topk_experts)}});
  }
  CliResult Plan(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"plan", "--input", Path("in"), "--output", Path("out")};
    args.insert(args.end(), more.begin(), more.end());
    return RunCli(args);
  }
  // A tensor of the written plan; its shape must be as given.
  std::vector<int32_t> Output(const std::string& name, const std::vector<int64_t>& shape) const {
    const absl::StatusOr<TensorFile> file = TensorFile::Open(Path("out"));
    if (!file.ok() || file->Find(name) == nullptr) {
      ADD_FAILURE() << "no tensor " << name << ": " << file.status();
      return {};
    }
    EXPECT_EQ(file->Find(name)->dtype, TensorDtype::kI32) << name;
    EXPECT_EQ(file->Find(name)->shape, shape) << name;
    return *file->ReadInt32(*file->Find(name));
  }
  void ExpectFailure(const CliResult& result, int status, const std::string& message) const {
    EXPECT_EQ(result.status, status);
    EXPECT_THAT(result.err, HasSubstr("perigee plan: "));
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(LineCount(result.err), status == kWrongUse ? 2 : 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(Path("out")));
  }

 private:
  std::string directory_;
};

const std::vector<int32_t> kG1 = {0, 1, 0, 2, 1, 0, 0, 3, 1, 0, 2, 0};

TEST_F(PlanCommandTest, WritesThePlan) {
  WriteRoutes({2, 3, 2}, kG1);
  const CliResult result = Plan({"--experts", "4", "--token-padding", "4"});
  ASSERT_EQ(result.status, kDone) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, HasSubstr("2 ranks of 3 tokens, top 2 of 4 experts"));
  EXPECT_THAT(Output("dst", {2, 6}), ElementsAre(0, -5, 1, 18, 5, -3, 26, -23, 6, 27, 19, -29));
  EXPECT_THAT(Output("cu_seqlens", {2, 6}), ElementsAre(4, 8, 8, 8, 8, 8, 0, 0, 4, 8, 12, 12));
  EXPECT_THAT(Output("zero_fill_ranges", {2, 6, 2}),
              ElementsAre(3, 1, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0,  //
                          0, 0, 0, 0, 2, 2, 5, 3, 11, 1, 0, 0));
  EXPECT_THAT(Output("experts_to_copy", {2, 2}), ElementsAre(-1, -1, 0, -1));
  EXPECT_THAT(Output("remote_stats", {2, 2}), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(Output("alloc", {4, 2}), ElementsAre(3, 3, 3, 0, 0, 2, 0, 1));
  EXPECT_THAT(Output("load", {2}), ElementsAre(6, 6));
  EXPECT_THAT(Output("dup_counts", {2, 2}), ElementsAre(2, 2, 2, 2));
  std::vector<int32_t> groups(108, -1), rows(36, -1);  // [2, 18, 3] and [2, 18]
  const int32_t group_values[2][6] = {{0, 0, 1, 5, 1, 1}, {1, 0, 1, 8, 1, 1}};
  const int32_t row_values[2][2] = {{4, 2}, {10, 4}};
  for (size_t rank : {0, 1}) {
    std::copy_n(group_values[rank], 6, groups.begin() + rank * 54);
    std::copy_n(row_values[rank], 2, rows.begin() + rank * 18);
  }
  EXPECT_EQ(Output("dup_groups", {2, 18, 3}), groups);
  EXPECT_EQ(Output("dup_rows", {2, 18}), rows);
}

// Rank r takes tokens [r * tokens / R, r * tokens / R + S) of the layer.
TEST_F(PlanCommandTest, LayerModeTakesTheFirstTokensOfEachRank) {
  std::vector<int32_t> layers(16);  // [2, 8, 1]
  for (int32_t i = 0; i < 16; ++i) layers[i] = i % 4;
  layers[8 + 1] = layers[8 + 5] = 2;
  const std::vector<int32_t> taken = {layers[8], layers[9], layers[12], layers[13]};
  Geometry geometry{
      .ranks = 2, .experts = 4, .tokens = 2, .topk = 1, .slots = 2, .token_padding = 128};
  const auto expected = PlanGroup(geometry, taken, {});
  ASSERT_TRUE(expected.ok());
  const std::vector<uint8_t> narrow(layers.begin(), layers.end());
  Write({{"topk_experts", TensorDtype::kU8, {2, 8, 1}, BytesOf(narrow)}});
  const CliResult result =
      Plan({"--layer", "1", "--ranks", "2", "--tokens", "2", "--experts", "4"});
  ASSERT_EQ(result.status, kDone) << result.err;
  EXPECT_EQ(Output("dst", {2, 2}), expected->dst);
  // More than there are: all.
  ASSERT_EQ(Plan({"--layer", "1", "--ranks", "2", "--tokens", "99", "--experts", "4"}).status,
            kDone);
  EXPECT_EQ(Output("dst", {2, 4}).size(), 8u);
}

TEST_F(PlanCommandTest, MaskedRoutesAndTokenCounts) {
  std::vector<int64_t> topk = {0, -1, 3, 2, -1, -1, 3, int64_t{1} << 40};
  const std::vector<int64_t> counts = {2, 1};
  Write({{"topk_experts", TensorDtype::kI64, {2, 2, 2}, BytesOf(topk)},
         {"token_counts", TensorDtype::kI64, {2}, BytesOf(counts)}});
  ASSERT_EQ(Plan({"--experts", "4"}).status, kDone);
  const std::vector<int32_t> dst = Output("dst", {2, 4});
  EXPECT_GE(dst[0], 0);
  EXPECT_EQ(dst[1], INT32_MIN);
  EXPECT_THAT(std::vector<int32_t>(dst.begin() + 4, dst.end()), Each(INT32_MIN));
  EXPECT_THAT(Output("load", {2}), ElementsAre(2, 1));
}

TEST_F(PlanCommandTest, NoSlotsNoTokens) {
  WriteRoutes({2, 3, 2}, kG1);
  ASSERT_EQ(Plan({"--experts", "4", "--slots", "0"}).status, kDone);
  EXPECT_THAT(Output("experts_to_copy", {2, 0}), IsEmpty());
  EXPECT_THAT(Output("remote_stats", {2, 2}), ElementsAre(0, 0, 1, 0));
  Output("cu_seqlens", {2, 4});

  WriteRoutes({2, 0, 2}, {});
  ASSERT_EQ(Plan({"--experts", "4", "--token-padding", "1"}).status, kDone);
  EXPECT_THAT(Output("dst", {2, 0}), IsEmpty());
  EXPECT_THAT(Output("dup_rows", {2, 0}), IsEmpty());
  EXPECT_THAT(Output("load", {2}), ElementsAre(0, 0));

  WriteRoutes({2, 3, 2}, kG1);
  ASSERT_EQ(Plan({"--experts", "4", "--tokens", "0", "--json"}).status, kDone);
  EXPECT_THAT(Output("dst", {2, 0}), IsEmpty());

  const std::vector<int32_t> none = {0, 0};
  Write({{"topk_experts", TensorDtype::kI32, {2, 3, 2}, BytesOf(kG1)},
         {"token_counts", TensorDtype::kI32, {2}, BytesOf(none)}});
  ASSERT_EQ(Plan({"--experts", "4"}).status, kDone);
  EXPECT_THAT(Output("dst", {2, 6}), Each(INT32_MIN));
}

TEST_F(PlanCommandTest, WrongUse) {
  WriteRoutes({2, 3, 2}, kG1);
  ExpectFailure(Plan({}), kWrongUse, "--experts is missing");
  ExpectFailure(Plan({"--experts", "5"}), kWrongUse,
                "experts is 5, expected a multiple of ranks (2)");
  ExpectFailure(Plan({"--experts", "4", "--ranks", "4"}), kWrongUse,
                "--ranks is 4, the file has routes of 2 ranks");
  ExpectFailure(Plan({"--experts", "4", "--layer", "0"}), kWrongUse,
                "--ranks is missing, expected with --layer");
  ExpectFailure(Plan({"--experts", "4", "--layer", "2", "--ranks", "1"}), kWrongUse,
                "--layer is 2, the file has 2 layers");
  ExpectFailure(Plan({"--experts", "4", "--layer", "0", "--ranks", "2"}), kWrongUse,
                "--ranks is 2, which does not divide the file's 3 tokens");
  ExpectFailure(Plan({"--experts", "4", "--token-padding", "0"}), kWrongUse,
                "--token-padding is '0', expected a number, 1 or more");
  ExpectFailure(Plan({"--experts", "4", "--token-padding", "2000000000"}), kWrongUse,
                "expected less than 2^31");
  ExpectFailure(Plan({"--experts", "4", "--expert", "4"}), kWrongUse,
                "unknown flag --expert, did you mean --experts?");
}

TEST_F(PlanCommandTest, BadFiles) {
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "cannot open " + Path("in"));
  WriteRoutes({2, 3, 2}, kG1);
  const auto size = std::filesystem::file_size(Path("in"));
  std::filesystem::resize_file(Path("in"), size - 5);
  ExpectFailure(
      Plan({"--experts", "4"}), kFailed,
      "cut short: " + std::to_string(size - 5) + " bytes, expected " + std::to_string(size));
  std::ofstream(Path("in")) << "not a tensor file at all";
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "no safetensors file");

  const std::vector<float> floats(12, 0);
  Write({{"topk_experts", TensorDtype::kF32, {2, 3, 2}, BytesOf(floats)}});
  ExpectFailure(Plan({"--experts", "4"}), kFailed,
                "tensor \"topk_experts\" is F32 [2, 3, 2], expected integers");
  Write({{"experts", TensorDtype::kI32, {2, 3, 2}, BytesOf(kG1)}});
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "no tensor \"topk_experts\"; it has experts");
  WriteRoutes({6, 2}, kG1);
  ExpectFailure(Plan({"--experts", "4"}), kFailed,
                "tensor topk_experts is I32 [6, 2], expected [ranks, tokens, topk]");
  WriteRoutes({3, 4, 0}, {});
  ExpectFailure(Plan({"--experts", "3"}), kFailed, "1 to 32 routes a token");
  WriteRoutes({0, 4, 1}, {});
  ExpectFailure(Plan({"--experts", "3"}), kFailed, "1 to 128 ranks");

  const std::vector<int32_t> counts = {1, 4};
  Write({{"topk_experts", TensorDtype::kI32, {2, 3, 2}, BytesOf(kG1)},
         {"token_counts", TensorDtype::kI32, {2}, BytesOf(counts)}});
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "token_counts of rank 1 is 4, expected 0 to 3");
  Write({{"topk_experts", TensorDtype::kI32, {2, 3, 2}, BytesOf(kG1)},
         {"token_counts", TensorDtype::kI32, {1, 2}, BytesOf(counts)}});
  ExpectFailure(Plan({"--experts", "4"}), kFailed,
                "tensor token_counts is I32 [1, 2], expected [2]");
}

TEST_F(PlanCommandTest, IdsOutOfRangeAreNamed) {
  std::vector<int32_t> topk = kG1;
  topk[9] = 4;
  WriteRoutes({2, 3, 2}, topk);
  ExpectFailure(Plan({"--experts", "4"}), kFailed,
                "rank 1 token 1 k 1: expert id 4, expected -1 (masked) to 3");
  topk[3] = -2;
  WriteRoutes({2, 3, 2}, topk);
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "rank 0 token 1 k 1: expert id -2");
  const std::vector<uint32_t> wide(12, 4294967295u);  // no mask: the type has no -1
  Write({{"topk_experts", TensorDtype::kU32, {2, 3, 2}, BytesOf(wide)}});
  ExpectFailure(Plan({"--experts", "4"}), kFailed, "rank 0 token 0 k 0: expert id 4294967295");
}

TEST_F(PlanCommandTest, UnwritableOutput) {
  WriteRoutes({2, 3, 2}, kG1);
  const CliResult result =
      RunCli({"plan", "--input", Path("in"), "--output", Path("no/such/out"), "--experts", "4"});
  ExpectFailure(result, kFailed, "cannot write " + Path("no/such/out"));
}

std::vector<std::string> Keys(const google::protobuf::Struct& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.fields()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST_F(PlanCommandTest, JsonKeysAreTheDocumentedOnes) {
  WriteRoutes({2, 3, 2}, kG1);
  const CliResult result =
      Plan({"--experts", "4", "--token-padding", "4", "--hidden", "50", "--json"});
  ASSERT_EQ(result.status, kDone) << result.err;
  google::protobuf::Value json;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &json).ok()) << result.out;
  const auto& fields = json.struct_value().fields();
  EXPECT_THAT(
      Keys(json.struct_value()),
      ElementsAre("bytes_per_rank", "experts", "hidden", "home_load", "hottest_expert_over_mean",
                  "hottest_rank_over_mean", "load", "output", "planning_ms", "ranks", "replicas",
                  "replicas_in_slots", "replicas_max", "replicas_total", "routes", "rows_over_link",
                  "rows_per_rank", "rows_received", "rows_sent", "slots", "token_padding", "tokens",
                  "topk", "traffic"));
  const auto inner = [&](const char* key) -> const google::protobuf::Struct& {
    return fields.at(key).struct_value();
  };
  EXPECT_THAT(Keys(inner("traffic")), ElementsAre("combine", "dispatch", "local_sum"));
  EXPECT_EQ(fields.at("rows_over_link").number_value(), 2);
  EXPECT_EQ(inner("hottest_rank_over_mean").fields().at("before").number_value(), 1.5);
  EXPECT_EQ(inner("hottest_rank_over_mean").fields().at("after").number_value(), 1);
  EXPECT_EQ(inner("rows_per_rank").fields().at("balanced").number_value(), 18);
  EXPECT_EQ(inner("rows_per_rank").fields().at("unbalanced_hottest").number_value(), 12);
  EXPECT_EQ(inner("rows_per_rank").fields().at("unbalanced_worst_case").number_value(), 12 + 6);
  EXPECT_EQ(inner("bytes_per_rank").fields().at("balanced").number_value(), 1800);
  const auto& dispatch = inner("traffic").fields().at("dispatch").struct_value().fields();
  EXPECT_EQ(dispatch.at("link_bytes").number_value(), 2 * 104);
}

// Routes of a trained router, skewed as real ones are.
TEST_F(PlanCommandTest, RecordedRoutes) {
  const std::pair<std::string, int32_t> files[] = {{"routes_e256_k8_early_layer2", 256},
                                                   {"routes_e64_k8_layer0", 64}};
  for (const auto& [name, experts] : files) {
    SCOPED_TRACE(name);
    const CliResult result =
        RunCli({"plan", "--input", "tests/testdata/" + name + ".safetensors", "--output",
                Path("out"), "--experts", std::to_string(experts)});
    ASSERT_EQ(result.status, kDone) << result.err;
    EXPECT_THAT(Output("load", {8}), Each(1024 * 8));
    const std::vector<int32_t> stats = Output("remote_stats", {8, 2});
    int32_t replicas = 0;
    for (size_t rank = 0; rank < 8; ++rank) {
      EXPECT_LE(stats[2 * rank], experts / 8);
      replicas += stats[2 * rank];
    }
    EXPECT_GT(replicas, 0);
    const std::vector<int32_t> alloc = Output("alloc", {experts, 8});
    EXPECT_EQ(std::accumulate(alloc.begin(), alloc.end(), 0), 8 * 1024 * 8);
  }
}

}  // namespace
}  // namespace perigee
