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

}  // namespace
}  // namespace perigee
