#include "worker/memory/buffer_shape.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/memory/buffer_memory.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

v1::BufferShape Good() {
  v1::BufferShape shape;
  shape.set_tokens(16);
  shape.set_hidden(64);
  shape.set_topk(2);
  shape.set_experts(8);
  shape.set_intermediate(32);
  shape.set_layers(3);
  return shape;
}

TEST(BufferShapeTest, DefaultsAreFilledIn) {
  absl::StatusOr<BufferShape> shape = ParseBufferShape(Good(), 4);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->geometry, (Geometry{4, 8, 16, 2, 2, 128}));
  EXPECT_EQ(shape->weights(), (WeightsShape{64, 32}));
  EXPECT_TRUE(shape->has_weights());
}

TEST(BufferShapeTest, NoSlotsAndNoWeightsAreLegal) {
  v1::BufferShape wire = Good();
  wire.set_slots(0);
  wire.set_intermediate(0);
  wire.set_layers(0);
  wire.set_token_padding(1);
  absl::StatusOr<BufferShape> shape = ParseBufferShape(wire, 2);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->geometry.slots, 0);
  EXPECT_EQ(shape->geometry.token_padding, 1);
  EXPECT_FALSE(shape->has_weights());
}

TEST(BufferShapeTest, WeightsMayBeOfOtherFormats) {
  v1::BufferShape wire = Good();
  EXPECT_EQ(ParseBufferShape(wire, 2)->weight_parts(), kWeightMatrices);
  wire.set_weight_format(v1::BufferShape::WEIGHT_FORMAT_MXFP4);
  wire.set_weight_scales(true);
  const absl::StatusOr<BufferShape> shape = ParseBufferShape(wire, 2);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->weights(), (WeightsShape{64, 32, WeightFormat::kMxfp4, true}));
  EXPECT_EQ(shape->weight_parts(), kWeightParts);
}

struct BadShape {
  void (*change)(v1::BufferShape&);
  const char* names;
};

TEST(BufferShapeTest, EveryBadFieldIsNamed) {
  const BadShape cases[] = {
      {[](v1::BufferShape& shape) { shape.set_hidden(60); }, "hidden is 60"},
      {[](v1::BufferShape& shape) { shape.set_hidden(0); }, "hidden is 0"},
      {[](v1::BufferShape& shape) { shape.set_hidden(1 << 30); }, "hidden is"},
      {[](v1::BufferShape& shape) { shape.set_intermediate(-8); }, "intermediate is -8"},
      {[](v1::BufferShape& shape) { shape.set_layers(0); }, "layers is 0"},
      {[](v1::BufferShape& shape) { shape.set_layers(100000); }, "layers is 100000"},
      {[](v1::BufferShape& shape) { shape.set_intermediate(0); }, "layers is 3"},
      {[](v1::BufferShape& shape) { shape.set_experts(7); }, "7"},
      {[](v1::BufferShape& shape) { shape.set_tokens(-1); }, "-1"},
      {[](v1::BufferShape& shape) { shape.set_topk(33); }, "33"},
      {[](v1::BufferShape& shape) { shape.set_slots(-1); }, "-1"},
      {[](v1::BufferShape& shape) { shape.set_token_padding(-1); }, "-1"},
      {[](v1::BufferShape& shape) { shape.set_weight_scales(true); }, "weight_format is bf16"},
      {[](v1::BufferShape& shape) {
         shape.set_weight_format(static_cast<v1::BufferShape::WeightFormat>(9));
       },
       "weight_format 9 is unknown"},
  };
  for (const BadShape& bad : cases) {
    v1::BufferShape wire = Good();
    bad.change(wire);
    const absl::Status status = ParseBufferShape(wire, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wire.ShortDebugString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.names));
  }
  EXPECT_FALSE(ParseBufferShape(Good(), 0).ok());
}

TEST(BufferShapeTest, GradientsNeedWeightsAndASlotForEachRemoteExpert) {
  v1::BufferShape wire = Good();
  EXPECT_FALSE(ParseBufferShape(wire, 2)->gradients);
  wire.set_gradients(true);
  EXPECT_TRUE(ParseBufferShape(wire, 2)->gradients);
  const auto message = [&] { return std::string(ParseBufferShape(wire, 2).status().message()); };
  wire.set_slots(3);
  EXPECT_THAT(message(), HasSubstr("slots is 3, expected at least experts / ranks = 4"));
  wire.set_slots(9);
  EXPECT_TRUE(ParseBufferShape(wire, 2).ok());
  wire.set_layers(0);
  wire.set_intermediate(0);
  EXPECT_THAT(message(), HasSubstr("layers is 0"));
}

TEST(BufferShapeTest, OutputSlotsAreNoneOrUpToTheLimit) {
  v1::BufferShape wire = Good();
  EXPECT_EQ(ParseBufferShape(wire, 2)->dispatch_output_slots, 0);
  wire.set_dispatch_output_slots(64);
  wire.set_expert_output_slots(1);
  EXPECT_EQ(ParseBufferShape(wire, 2)->dispatch_output_slots, 64);
  EXPECT_EQ(ParseBufferShape(wire, 2)->expert_output_slots, 1);
  wire.set_expert_output_slots(-1);
  EXPECT_THAT(std::string(ParseBufferShape(wire, 2).status().message()),
              HasSubstr("expert_output_slots is -1, expected 0 to 64 of each"));
  wire.set_dispatch_output_slots(65);
  EXPECT_THAT(std::string(ParseBufferShape(wire, 2).status().message()),
              HasSubstr("dispatch_output_slots is 65"));
}

TEST(BufferShapeTest, TheLargestShapeDoesNotOverflowItsBytes) {
  v1::BufferShape wire = Good();
  wire.set_hidden(1 << 17);
  wire.set_intermediate(1 << 17);
  wire.set_experts(1 << 16);
  wire.set_slots(1 << 16);
  wire.set_token_padding(1);
  wire.set_layers(1024);
  absl::StatusOr<BufferShape> shape = ParseBufferShape(wire, 1);
  ASSERT_TRUE(shape.ok()) << shape.status();
  // 1024 layers of 3 matrices of 2^34 elements of 2 bytes for 2^16 experts, and more.
  EXPECT_GT(BufferMemory::NeededBytes(*shape), uint64_t{3} << 61);
  wire.set_gradients(true);
  EXPECT_FALSE(ParseBufferShape(wire, 1).ok());
  wire.set_layers(512);
  shape = ParseBufferShape(wire, 1);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_GT(BufferMemory::NeededBytes(*shape), uint64_t{9} << 60);
}

}  // namespace
}  // namespace perigee
