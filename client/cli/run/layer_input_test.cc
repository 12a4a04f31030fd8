#include "client/cli/run/layer_input.h"

#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/layer_file.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class LayerInputTest : public ::testing::Test {
 protected:
  LayerInputTest()
      : file_(LayerFile::Random({.ranks = 2, .tokens = 6, .experts = 4}, 1)),
        path_(absl::StrCat(testing::TempDir(), "/layer.safetensors")) {}

  // What Open says of the file with these tensors.
  std::string Refusal(const std::vector<TensorSource>& tensors) {
    EXPECT_TRUE(WriteTensorFile(path_, tensors, {}).ok());
    const auto input = LayerInput::Open(path_);
    return input.ok() ? "accepted" : std::string(input.status().message());
  }

  LayerFile file_;
  const std::string path_;
};

TEST_F(LayerInputTest, CutsTheTokensForAnyNumberOfRanks) {
  ASSERT_TRUE(file_.Write(path_).ok());
  const auto input = LayerInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->file_ranks(), 2);
  EXPECT_EQ(input->tokens(), 12);
  EXPECT_EQ(input->experts(), 4);
  ASSERT_TRUE(input->expected_output().has_value());
  for (const int32_t ranks : {1, 2, 3, 4}) {
    const int32_t share = 12 / ranks;
    const RankInput last = input->ForRank(ranks - 1, ranks);
    EXPECT_EQ(last.hidden.shape, (std::vector<int64_t>{share, 16}));
    EXPECT_EQ(last.topk_experts.shape, (std::vector<int64_t>{share, 2}));
    const size_t first_route = static_cast<size_t>(12 - share) * 2;
    EXPECT_EQ(std::memcmp(last.topk_experts.data.data(), &file_.topk_experts[first_route],
                          last.topk_experts.data.size()),
              0);
    EXPECT_EQ(std::memcmp(last.hidden.data.data(), &file_.hidden[(12 - share) * 16],
                          last.hidden.data.size()),
              0);
  }
}

TEST_F(LayerInputTest, ExpectedOutputMayBeAbsent) {
  file_.expected.clear();
  ASSERT_TRUE(file_.Write(path_).ok());
  const auto input = LayerInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_FALSE(input->expected_output().has_value());
}

TEST_F(LayerInputTest, MissingTensorsAreNamed) {
  std::vector<TensorSource> tensors = file_.Tensors();
  tensors.erase(tensors.begin() + 4);  // up
  EXPECT_THAT(Refusal(tensors), HasSubstr("up"));
}

TEST_F(LayerInputTest, ADtypeThatIsAnotherIsNamed) {
  std::vector<TensorSource> tensors = file_.Tensors();
  tensors[0].dtype = TensorDtype::kF16;
  EXPECT_THAT(Refusal(tensors), HasSubstr("tensor hidden is F16 [2, 6, 16], expected BF16"));
  tensors = file_.Tensors();
  tensors[1].dtype = TensorDtype::kF32;
  EXPECT_THAT(Refusal(tensors), HasSubstr("topk_experts"));
}

TEST_F(LayerInputTest, ShapesThatDoNotFitTogetherAreNamed) {
  std::vector<TensorSource> tensors = file_.Tensors();
  tensors[2].shape = {2, 2, 6};  // route_weights
  EXPECT_THAT(Refusal(tensors),
              HasSubstr("tensor route_weights is F32 [2, 2, 6], expected F32 [2, 6, 2]"));
  tensors = file_.Tensors();
  tensors[5].shape = {4, 16, 8};  // down
  EXPECT_THAT(Refusal(tensors),
              HasSubstr("tensor down is BF16 [4, 16, 8], expected BF16 [4, 8, 16]"));
  tensors = file_.Tensors();
  tensors[0].shape = {12, 16};
  EXPECT_THAT(Refusal(tensors), HasSubstr("expected three dimensions"));
}

TEST_F(LayerInputTest, IdsOutOfRangeAreNamedWithTheirPlace) {
  file_.topk_experts[2 * 7 + 1] = 4;  // rank 1, token 1, k 1
  EXPECT_THAT(Refusal(file_.Tensors()),
              HasSubstr("topk_experts of rank 1, token 1, k 1 is 4, expected -1 to 3"));
  file_.topk_experts[2 * 7 + 1] = -2;
  EXPECT_THAT(Refusal(file_.Tensors()), HasSubstr("is -2"));
}

TEST_F(LayerInputTest, ATruncatedFileIsNoFile) {
  ASSERT_TRUE(file_.Write(path_).ok());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  const auto input = LayerInput::Open(path_);
  ASSERT_FALSE(input.ok());
  EXPECT_THAT(std::string(input.status().message()), HasSubstr(path_));
}

TEST_F(LayerInputTest, NoTokensAreFine) {
  file_ = LayerFile::Random({.ranks = 2, .tokens = 0}, 1);
  EXPECT_EQ(Refusal(file_.Tensors()), "accepted");
}

}  // namespace
}  // namespace perigee
