#include "kernels/layout/weights_layout.h"

#include <gtest/gtest.h>

namespace perigee {
namespace {

void ExpectMatrices(const WeightsLayout& layout, size_t header_bytes, size_t matrix_bytes) {
  EXPECT_EQ(layout.header, 0u);
  EXPECT_GE(layout.gate, header_bytes);
  EXPECT_GE(layout.up, layout.gate + matrix_bytes);
  EXPECT_GE(layout.down, layout.up + matrix_bytes);
  EXPECT_GE(layout.size_bytes, layout.down + matrix_bytes);
  EXPECT_LT(layout.size_bytes, layout.down + matrix_bytes + 4096);
  EXPECT_EQ(layout.size_bytes % 4096, 0u);
  for (size_t offset : {layout.gate, layout.up, layout.down}) EXPECT_EQ(offset % 64, 0u);
}

TEST(WeightsLayoutTest, HomeAndSlotBlocksDifferOnlyInTheirHeaders) {
  const WeightsShape shape = {24, 40};
  EXPECT_EQ(shape.matrix_elements(), 960);
  ExpectMatrices(WeightsLayout::Home(shape, 5), sizeof(HomeHeader), 5 * 960 * 2);
  ExpectMatrices(WeightsLayout::Slots(shape, 9), 9 * sizeof(SlotTag), 9 * 960 * 2);
}

struct Format {
  WeightsShape shape;
  int64_t bytes[kWeightParts];
};

TEST(WeightsLayoutTest, PartsOfEveryFormatAreAsLongAsTheirElements) {
  const Format formats[] = {
      {{256, 384}, {196608, 196608, 196608, 0, 0, 0}},
      {{256, 384, WeightFormat::k8Bit}, {98304, 98304, 98304, 0, 0, 0}},
      {{256, 384, WeightFormat::k8Bit, true},
       {98304, 98304, 98304, 4 * 2 * 3, 4 * 2 * 3, 4 * 3 * 2}},
      {{256, 384, WeightFormat::kMxfp4}, {49152, 49152, 49152, 0, 0, 0}},
      {{256, 384, WeightFormat::kMxfp4, true}, {49152, 49152, 49152, 256 * 12, 256 * 12, 384 * 8}},
      // Blocks that end early.
      {{24, 40, WeightFormat::k8Bit, true}, {960, 960, 960, 4, 4, 4}},
      {{136, 8, WeightFormat::k8Bit, true}, {1088, 1088, 1088, 8, 8, 8}},
      {{24, 40, WeightFormat::kMxfp4, true}, {480, 480, 480, 24 * 2, 24 * 2, 40}},
  };
  for (const Format& format : formats) {
    for (const WeightsLayout& layout :
         {WeightsLayout::Home(format.shape, 3), WeightsLayout::Slots(format.shape, 3)}) {
      size_t end = layout.header;
      for (int part = 0; part < kWeightParts; ++part) {
        EXPECT_EQ(format.shape.part_bytes(part), format.bytes[part]) << part;
        EXPECT_EQ(layout.part(part) % 64, 0u);
        EXPECT_GE(layout.part(part), end) << part;
        end = layout.part(part) + 3 * format.bytes[part];
      }
      EXPECT_GE(layout.size_bytes, end);
    }
    for (int part = 0; part < kWeightMatrices; ++part) {
      EXPECT_EQ(format.shape.part_bytes(part) % 16, 0);
    }
  }
}

}  // namespace
}  // namespace perigee
