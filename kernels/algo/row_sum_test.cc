#include "kernels/algo/row_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace perigee {
namespace {

std::vector<BFloat16> Row(int32_t hidden, float value) {
  return std::vector<BFloat16>(hidden, ToBFloat16(value));
}

TEST(RowSumTest, SumsInOrderAndRoundsOnce) {
  // 256 + 1 is a tie that rounds back to 256 in bf16: rounding after each step would lose both
  // ones, fp32 keeps them.
  for (int32_t hidden : {8, 64, 72, 136}) {
    const auto big = Row(hidden, 256.0f);
    const auto one = Row(hidden, 1.0f);
    const BFloat16* rows[] = {big.data(), one.data(), one.data()};
    std::vector<BFloat16> out(hidden);
    SumRows(rows, 3, hidden, out.data());
    EXPECT_EQ(out, Row(hidden, 258.0f));
  }
}

TEST(RowSumTest, TheOrderShows) {
  // In fp32, 2^24 + 1 loses the one, 1 + 1 does not: the order of the terms changes the sum.
  const auto big = Row(8, 0x1p24f);
  const auto minus_big = Row(8, -0x1p24f);
  const auto one = Row(8, 1.0f);
  std::vector<BFloat16> out(8);
  const BFloat16* late[] = {one.data(), big.data(), minus_big.data()};
  SumRows(late, 3, 8, out.data());
  EXPECT_EQ(out, Row(8, 0.0f));
  const BFloat16* early[] = {big.data(), minus_big.data(), one.data()};
  SumRows(early, 3, 8, out.data());
  EXPECT_EQ(out, Row(8, 1.0f));
}

TEST(RowSumTest, ASingleRowKeepsItsBits) {
  std::vector<BFloat16> row(8);
  for (uint32_t first = 0; first < 0x10000; first += 8) {
    for (uint32_t i = 0; i < 8; ++i) row[i].bits = static_cast<uint16_t>(first + i);
    std::vector<BFloat16> out(8);
    const BFloat16* rows[] = {row.data()};
    SumRows(rows, 1, 8, out.data());
    for (uint32_t i = 0; i < 8; ++i) {
      // A signalling NaN comes out quiet.
      if (std::isnan(ToFloat(row[i]))) {
        EXPECT_TRUE(std::isnan(ToFloat(out[i])));
      } else {
        EXPECT_EQ(out[i], row[i]);
      }
    }
  }
}

TEST(RowSumTest, EverySumThatIsNoNumberHasTheSameBits) {
  for (const uint16_t bits : {0x7fc1, 0xffc0, 0x7fff, 0xff81}) {
    const std::vector<BFloat16> nan(8, BFloat16{bits});
    const auto one = Row(8, 1.0f);
    const BFloat16* rows[] = {one.data(), nan.data(), one.data()};
    std::vector<BFloat16> out(8);
    SumRows(rows, 3, 8, out.data());
    EXPECT_EQ(out, std::vector<BFloat16>(8, kNanSum));
  }
}

TEST(RowSumTest, TheResultMayReplaceATerm) {
  auto first = Row(72, 2.0f);
  const auto second = Row(72, 3.0f);
  const BFloat16* rows[] = {first.data(), second.data()};
  SumRows(rows, 2, 72, first.data());
  EXPECT_EQ(first, Row(72, 5.0f));
}

}  // namespace
}  // namespace perigee
