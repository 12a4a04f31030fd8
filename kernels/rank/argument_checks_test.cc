#include "kernels/rank/argument_checks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace perigee {
namespace {

constexpr size_t kPage = 4096;
constexpr int32_t kTokens = 4;

// The checks read addresses only, so these need no memory behind them.
template <typename T = std::byte>
T* At(uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}
BFloat16* const kOutside = At<BFloat16>(0x7000'0000);
float* const kOutsideFloats = At<float>(0x7100'0000);

DataPathOptions Options() {
  DataPathOptions options;
  options.geometry = {
      .ranks = 2, .experts = 4, .tokens = kTokens, .topk = 2, .slots = 1, .token_padding = 8};
  options.hidden = 16;
  options.rank = RankId(1);
  options.buffer = BufferId(3);
  options.generation = Generation(9);
  options.shards = {At(0x1000'0000), At(0x2000'0000)};
  return options;
}

// "" for none.
std::string Error(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::string OptionsError(const DataPathOptions& options) {
  return Error(CheckDataPathOptions(options, kPage));
}

TEST(DataPathOptionsTest, EachMistakeIsNamed) {
  EXPECT_EQ(OptionsError(Options()), "");
  const std::vector<std::pair<void (*)(DataPathOptions&), std::string>> mistakes = {
      {[](auto& o) { o.hidden = 12; }, "hidden size is 12, expected a positive multiple of 8"},
      {[](auto& o) { o.threads = 0; }, "threads is 0, expected 1 to 1024"},
      {[](auto& o) { o.operation_timeout = absl::ZeroDuration(); },
       "operation timeout is 0, expected more than 0"},
      {[](auto& o) { o.rank = RankId(2); }, "rank is 2, expected 0 to 1"},
      {[](auto& o) { o.generation = Generation(0); },
       "buffer is 3, generation 0, expected neither to be 0"},
      {[](auto& o) { o.shards.pop_back(); }, "there are 1 shards, expected 2"},
      {[](auto& o) { o.shards[0] = nullptr; }, "shard of rank 0 is null or not page aligned"},
      {[](auto& o) { o.shards[1] += 64; }, "shard of rank 1 is null or not page aligned"},
      {[](auto& o) { o.shard_rows = {At(0x3000'0000)}; }, "rows are apart of 1 shards, expected 2"},
      {[](auto& o) {
         o.shard_rows = {At(0x3000'0000), nullptr};
       },
       "rows of the shard of rank 1 are null or not page aligned"},
      {[](auto& o) { o.sources = {At(0x3000'0000)}; },
       "there are 1 source shards, expected none or 2"},
      {[](auto& o) {
         o.sources = {At(0x3000'0040), At(0x4000'0000)};
       },
       "source shard of rank 0 is null or not page aligned"},
      {[](auto& o) {
         o.sources = {At(0x3000'0000), At(0x4000'0000)};
         o.transport = Transport::kNccl;
       },
       "source shards are given, transport nccl has none: peers cannot read them"},
  };
  for (const auto& [change, expected] : mistakes) {
    DataPathOptions options = Options();
    change(options);
    EXPECT_EQ(OptionsError(options), expected);
  }
}

// Later checks count with what earlier ones have accepted: the geometry first, shards last.
TEST(DataPathOptionsTest, TheFirstMistakeInThisOrderIsTold) {
  DataPathOptions options = Options();
  options.geometry.experts = 3;
  options.hidden = 0;
  options.threads = 0;
  options.rank = RankId(-1);
  options.shards.clear();
  EXPECT_NE(OptionsError(options).find("experts is 3"), std::string::npos);
  options.geometry = Options().geometry;
  EXPECT_NE(OptionsError(options).find("hidden size"), std::string::npos);
  options.hidden = 16;
  EXPECT_NE(OptionsError(options).find("threads"), std::string::npos);
  options.threads = 1;
  EXPECT_NE(OptionsError(options).find("rank is -1"), std::string::npos);
  options.rank = RankId(0);
  EXPECT_NE(OptionsError(options).find("shards"), std::string::npos);
}

class ArgumentChecksTest : public ::testing::Test {
 protected:
  ArgumentChecksTest() {
    shape_.live = {Sequence(5), Sequence(5)};
    weights_.version = 7;
    weights_.home = {At(0x3000'0000), At(0x3100'0000)};
    weights_.slots = At(0x3200'0000);
    weights_.shape = {.hidden = 16, .intermediate = 8};
  }

  BFloat16* rows() const { return shape_.own().rows; }
  float* row_weights() const { return shape_.own().row_weights; }

  RankShape shape_ = MakeRankShape(Options());
  const PlanFacts plan_ = {{BufferId(3), Generation(9), Sequence(5)}, kTokens, 8};
  const DispatchInput input_ = {kOutside, At<int32_t>(0x7200'0000), nullptr, kTokens};
  ExpertWeights weights_;
};

TEST_F(ArgumentChecksTest, AUsedShardIsRefused) {
  EXPECT_EQ(Error(CheckFreshShard(shape_, 0)), "");
  EXPECT_EQ(Error(CheckFreshShard(shape_, BarrierPosition(6, Phase::kExit))),
            "shard of rank 1 has been used up to sequence 6, expected zeroed memory");
}

TEST_F(ArgumentChecksTest, APlanOfAnotherOwnerIsRefused) {
  EXPECT_EQ(Error(CheckPlanOwner(shape_, plan_.tag, RankId(1))), "");
  EXPECT_EQ(Error(CheckPlanOwner(shape_, plan_.tag, RankId(0))),
            "plan is of rank 0, buffer 3, generation 9, expected one of rank 1, buffer 3, "
            "generation 9");
  EXPECT_EQ(
      Error(CheckPlanOwner(shape_, {BufferId(3), Generation(8), Sequence(5)}, RankId(1))),
      "plan is of rank 1, buffer 3, generation 8, expected one of rank 1, buffer 3, generation 9");
}

TEST_F(ArgumentChecksTest, DispatchNamesWhatIsMissing) {
  EXPECT_EQ(Error(CheckDispatch(shape_, input_, {})), "");
  EXPECT_EQ(Error(CheckDispatch(shape_, {nullptr, nullptr, nullptr, 0}, {})), "");
  // The count comes first: the texts after it are about so many tokens.
  EXPECT_EQ(Error(CheckDispatch(shape_, {nullptr, nullptr, nullptr, 5}, {})),
            "token count of rank 1 is 5, expected 0 to 4");
  EXPECT_EQ(Error(CheckDispatch(shape_, {nullptr, nullptr, nullptr, 4}, {})),
            "topk_experts is null, expected routes of 4 tokens");
  EXPECT_EQ(Error(CheckDispatch(shape_, {nullptr, input_.topk_experts, nullptr, 4}, {})),
            "hidden is null, expected 4 tokens");
}

TEST_F(ArgumentChecksTest, DispatchTakesNoMemoryOfItsOwnShard) {
  const auto text = [](const std::string& what) {
    return what + " lies in the shard that the operation uses; expected other memory";
  };
  DispatchInput input = input_;
  input.hidden = rows();
  EXPECT_EQ(Error(CheckDispatch(shape_, input, {})), text("hidden"));
  EXPECT_EQ(Error(CheckDispatch(shape_, input_, {rows(), nullptr})), text("output rows"));
  EXPECT_EQ(Error(CheckDispatch(shape_, input_, {nullptr, row_weights()})),
            text("output row weights"));
  // Memory that ends where the shard begins is other memory; one byte more is not.
  const size_t bytes = shape_.row_bytes(kTokens);
  input.hidden = At<BFloat16>(0x2000'0000 - bytes);
  EXPECT_EQ(Error(CheckDispatch(shape_, input, {})), "");
  input.hidden = At<BFloat16>(0x2000'0000 - bytes + 2);
  EXPECT_EQ(Error(CheckDispatch(shape_, input, {})), text("hidden"));
}

TEST_F(ArgumentChecksTest, ASavedPlanFixesTheTokenCount) {
  EXPECT_EQ(Error(CheckDispatchWithPlan(shape_, plan_, {kOutside, nullptr, nullptr, kTokens}, {})),
            "");
  EXPECT_EQ(Error(CheckDispatchWithPlan(shape_, plan_, {nullptr, nullptr, nullptr, 3}, {})),
            "token count of rank 1 is 3, its plan has 4");
}

TEST_F(ArgumentChecksTest, WeightsMustFitTheBuffer) {
  EXPECT_EQ(Error(CheckWeights(shape_, weights_)), "");
  const std::vector<std::pair<void (*)(ExpertWeights&), std::string>> mistakes = {
      {[](auto& w) { w.shape.hidden = 24; }, "weights have hidden size 24, the buffer has 16"},
      {[](auto& w) { w.shape.intermediate = 4; },
       "weights have intermediate size 4, expected a positive multiple of 8"},
      {[](auto& w) { w.version = 0; }, "weights version is 0, which means that none are loaded"},
      {[](auto& w) { w.home.pop_back(); },
       "weights have 1 home blocks, expected one of each of 2 ranks"},
      {[](auto& w) { w.home[1] = nullptr; }, "home block of rank 1 is null"},
      {[](auto& w) { w.slots = nullptr; }, "slot block is null, expected 1 slots"},
  };
  for (const auto& [change, expected] : mistakes) {
    ExpertWeights weights = weights_;
    change(weights);
    EXPECT_EQ(Error(CheckWeights(shape_, weights)), expected);
  }
  shape_.geometry.slots = 0;
  weights_.slots = nullptr;
  EXPECT_EQ(Error(CheckWeights(shape_, weights_)), "");
}

TEST_F(ArgumentChecksTest, ExpertsMayRunInPlaceOrElsewhereButNotHalf) {
  EXPECT_EQ(Error(CheckRunExperts(shape_, plan_, weights_, {rows(), row_weights(), rows()})), "");
  EXPECT_EQ(Error(CheckRunExperts(shape_, plan_, weights_, {rows(), nullptr, kOutside})), "");
  EXPECT_EQ(Error(CheckRunExperts(shape_, plan_, weights_, {nullptr, nullptr, nullptr})),
            "rows is null");
  EXPECT_EQ(Error(CheckRunExperts(shape_, plan_, weights_, {rows(), nullptr, nullptr})),
            "output is null");
  EXPECT_EQ(Error(CheckRunExperts(shape_, plan_, weights_, {kOutside, nullptr, kOutside + 16})),
            "output overlaps rows, expected the same address or other memory");
}

TEST_F(ArgumentChecksTest, RowsOfAnotherPlanAreNotTaken) {
  shape_.live = {Sequence(6), Sequence(0)};
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), nullptr}, {kOutside, nullptr})),
            "the shard holds rows of the plan of sequence 6, expected the plan of sequence 5: a "
            "later operation has overwritten or consumed them");
  EXPECT_EQ(
      Error(CheckCombine(shape_, plan_, {kOutside, row_weights()}, {kOutside, kOutsideFloats})),
      "the shard holds row weights of no plan, expected the plan of sequence 5: a later operation "
      "has overwritten or consumed them");
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {kOutside, nullptr}, {kOutside, nullptr})), "");
  CombineInput own{rows(), nullptr};
  own.own_rows = true;
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, own, {kOutside, nullptr})), "");
  own.rows = kOutside;
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, own, {kOutside, nullptr})),
            "own rows are not those in the shard");
}

TEST_F(ArgumentChecksTest, CombineGathersWeightsFromAndTo) {
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), row_weights()}, {kOutside, kOutsideFloats})),
            "");
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {nullptr, nullptr}, {})), "rows is null");
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), nullptr}, {})), "output hidden is null");
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), row_weights()}, {kOutside, nullptr})),
            "row weights and output route weights: one is null, expected both or none");
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), nullptr}, {rows(), nullptr})),
            "output hidden lies in the shard that the operation uses; expected other memory");
  shape_.geometry.tokens = 0;
  EXPECT_EQ(Error(CheckCombine(shape_, plan_, {rows(), nullptr}, {})), "");
}

TEST_F(ArgumentChecksTest, WeightsLiveOnlyWhereTheyWereSentOrKept) {
  const DispatchInput with = {kOutside, nullptr, kOutsideFloats, kTokens};
  const DispatchInput without = {kOutside, nullptr, nullptr, kTokens};
  const DispatchInput empty = {nullptr, nullptr, nullptr, 0};
  const LiveRows other = {Sequence(4), Sequence(4)};
  EXPECT_EQ(LiveAfterDispatch(Sequence(6), with, other).weights, Sequence(6));
  EXPECT_EQ(LiveAfterDispatch(Sequence(6), empty, other).weights, Sequence(6));
  EXPECT_EQ(LiveAfterDispatch(Sequence(6), without, other).weights, Sequence(0));
  EXPECT_EQ(LiveAfterDispatch(Sequence(4), without, other).weights, Sequence(4));
  EXPECT_EQ(LiveAfterDispatch(Sequence(6), without, other).rows, Sequence(6));
}

}  // namespace
}  // namespace perigee
