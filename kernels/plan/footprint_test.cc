#include "kernels/plan/footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kernels/layout/shard_layout.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

FootprintShape GoodShape() {
  return {.geometry = {.ranks = 8, .experts = 64, .tokens = 256, .topk = 8, .slots = 8},
          .hidden = 256,
          .intermediate = 64,
          .layers = 3};
}

std::map<std::string, int64_t> ByName(const Footprint& footprint) {
  std::map<std::string, int64_t> buffers;
  for (const BufferBytes& buffer : footprint.buffers) buffers[buffer.name] = buffer.bytes;
  return buffers;
}

TEST(Footprint, BuffersByHand) {
  const FootprintShape shape = GoodShape();
  const auto footprint = EstimateFootprint(shape);
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  const auto buffers = ByName(*footprint);
  const int64_t rows = 256 * 8 + 127 * 2 * 8;                  // NvS = 4080
  EXPECT_EQ(buffers.at("route_weight_shard"), rows * 4 + 64);  // to a page
  EXPECT_EQ(buffers.at("hidden_shard"), rows * 512);           // 4096 divides it
  EXPECT_EQ(buffers.at("tokens_in"), 256 * 512 + 2048 * 8);
  EXPECT_EQ(buffers.at("tokens_out"), 256 * 512 + 2048 * 4);
  const int64_t expert = int64_t{3} * 256 * 64 * 2;
  EXPECT_EQ(buffers.at("expert_weights"), 3 * (8 * expert + 4096));  // a header, to a page
  EXPECT_EQ(buffers.at("expert_slots"), 8 * expert + 4096);
  EXPECT_EQ(footprint->shard_bytes(),
            static_cast<int64_t>(ShardLayout::Create(shape.geometry, 256).size_bytes));
  int64_t all = 0;
  for (const auto& [name, bytes] : buffers) all += bytes;
  EXPECT_EQ(footprint->rank_bytes(), all);
  EXPECT_EQ(footprint->forming_bytes(), all + footprint->shard_bytes());
}

TEST(Footprint, WeightsOfOtherFormatsTakeTheirOwnBytesAndScalesTheirs) {
  FootprintShape shape = GoodShape();
  const auto slots = [&] { return ByName(*EstimateFootprint(shape)).at("expert_slots"); };
  const int64_t elements = int64_t{8} * 3 * 256 * 64;  // of 8 slots
  shape.weight_format = WeightFormat::k8Bit;
  EXPECT_EQ(slots(), elements + 4096);
  shape.weight_format = WeightFormat::kMxfp4;
  EXPECT_EQ(slots(), elements / 2 + 4096);
  shape.weight_scales = true;
  EXPECT_EQ(slots(), elements / 2 + elements / 32 + 4096);
  shape.weight_format = WeightFormat::k8Bit;
  EXPECT_EQ(slots(), elements + 4096) << "2 x 1 blocks of a matrix, in the page of the tags";
  shape.weight_format = WeightFormat::kBFloat16;
  EXPECT_THAT(std::string(EstimateFootprint(shape).status().message()),
              testing::HasSubstr("weight scales are wanted and the weights are bf16"));
  shape.weight_format = WeightFormat::k8Bit;
  shape.intermediate = 0;
  EXPECT_FALSE(EstimateFootprint(shape).ok());
}

TEST(Footprint, OutputSlotsAreCountedWhereThereAreSome) {
  FootprintShape shape = GoodShape();
  const auto without = EstimateFootprint(shape);
  EXPECT_EQ(ByName(*without).count("dispatch_output_slots"), 0u);
  EXPECT_EQ(ByName(*without).count("expert_output_slots"), 0u);
  shape.dispatch_output_slots = 4;
  shape.expert_output_slots = 2;
  const auto footprint = EstimateFootprint(shape);
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  const int64_t rows = 4080;
  const int64_t area = rows * 512 + rows * 4 + 64;
  EXPECT_EQ(ByName(*footprint).at("dispatch_output_slots"), 4 * area);
  EXPECT_EQ(ByName(*footprint).at("expert_output_slots"), 2 * rows * 512);
  EXPECT_EQ(footprint->rank_bytes() - without->rank_bytes(), 4 * area + 2 * rows * 512);
  EXPECT_EQ(footprint->shard_bytes() - without->shard_bytes(), 4 * area);
  shape.expert_output_slots = 65;
  EXPECT_FALSE(EstimateFootprint(shape).ok());
}

TEST(Footprint, GradientsAreOfOwnExpertsInEachLayerAndOfSlotsOnce) {
  FootprintShape shape = GoodShape();
  const int64_t without = EstimateFootprint(shape)->rank_bytes();
  EXPECT_EQ(ByName(*EstimateFootprint(shape)).count("expert_gradients"), 0u);
  shape.gradients = true;
  const auto footprint = EstimateFootprint(shape);
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  const int64_t expert = int64_t{3} * 256 * 64 * 4;
  EXPECT_EQ(ByName(*footprint).at("expert_gradients"), 3 * 8 * expert);
  EXPECT_EQ(ByName(*footprint).at("slot_gradients"), 8 * expert);
  EXPECT_EQ(footprint->rank_bytes(), without + 4 * 8 * expert);
  EXPECT_EQ(footprint->forming_bytes(), footprint->rank_bytes() + footprint->shard_bytes());
}

TEST(Footprint, WithoutWeightsOrSlots) {
  FootprintShape shape = GoodShape();
  shape.intermediate = 0;
  EXPECT_EQ(ByName(*EstimateFootprint(shape)).count("expert_weights"), 0u);
  shape = GoodShape();
  shape.geometry.slots = 0;
  EXPECT_EQ(ByName(*EstimateFootprint(shape)).at("expert_slots"), 0);
}

TEST(Footprint, RefusesBadShapes) {
  const auto message = [](const FootprintShape& shape) {
    return std::string(EstimateFootprint(shape).status().message());
  };
  FootprintShape shape = GoodShape();
  shape.hidden = 100;
  EXPECT_THAT(message(shape), HasSubstr("hidden is 100, expected a multiple of 8 from 8 to 65536"));
  shape = GoodShape();
  shape.intermediate = -8;
  EXPECT_THAT(message(shape), HasSubstr("intermediate is -8"));
  shape = GoodShape();
  shape.layers = 0;
  EXPECT_THAT(message(shape), HasSubstr("layers is 0, expected 1 to 1024"));
  shape = GoodShape();
  shape.gradients = true;
  shape.geometry.slots = 7;
  EXPECT_THAT(message(shape), HasSubstr("slots is 7, expected at least experts / ranks = 8"));
  shape.intermediate = 0;
  EXPECT_THAT(message(shape), HasSubstr("gradients are wanted and intermediate is 0"));
  shape = GoodShape();
  shape.geometry.experts = 65;
  EXPECT_THAT(message(shape), HasSubstr("experts is 65, expected a multiple of ranks (8)"));
}

TEST(Footprint, LargestShapeStaysIn63Bits) {
  const FootprintShape shape{.geometry = {.ranks = 1,
                                          .experts = kMaxExperts,
                                          .tokens = 1 << 26,
                                          .topk = 31,
                                          .slots = kMaxSlots,
                                          .token_padding = 1},
                             .hidden = 1 << 16,
                             .intermediate = 1 << 16,
                             .layers = 1024,
                             .gradients = true};
  const auto footprint = EstimateFootprint(shape);
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  for (const BufferBytes& buffer : footprint->buffers) EXPECT_GT(buffer.bytes, 0) << buffer.name;
  EXPECT_GT(footprint->forming_bytes(), int64_t{1} << 60);
}

}  // namespace
}  // namespace perigee
