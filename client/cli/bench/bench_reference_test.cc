#include "client/cli/bench/bench_reference.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/plan/destination.h"

namespace perigee {
namespace {

constexpr int64_t kLogicalRows = 100;

std::vector<BFloat16> Row(float value) { return {ToBFloat16(value)}; }

TEST(CombinedRow, IsTheRowForOneRouteAndZeroForNone) {
  EXPECT_EQ(CombinedRow(Row(1.5), std::vector<int32_t>{kMaskedRoute, 5}, kLogicalRows), Row(1.5));
  EXPECT_EQ(CombinedRow(Row(-0.0F), std::vector<int32_t>{5}, kLogicalRows), Row(-0.0F));
  EXPECT_EQ(CombinedRow(Row(1.5), std::vector<int32_t>{kMaskedRoute}, kLogicalRows), Row(0));
}

TEST(CombinedRow, AddsARowForEveryRoute) {
  const std::vector<int32_t> dst = {5, 105, EncodeDuplicate(6), EncodeDuplicate(107)};
  EXPECT_EQ(CombinedRow(Row(1.5), dst, kLogicalRows), Row(6));
}

// 1 + 2^-7 has all bits of a bf16: three times it takes a rounding on the rank that holds three
// rows, and adding the fourth another one.
TEST(CombinedRow, RoundsOnEveryRankAndAtTheEnd) {
  const float value = 1 + 1.0F / 128;
  const float three = ToFloat(ToBFloat16(3 * value));
  ASSERT_NE(three, 3 * value);
  const std::vector<int32_t> dst = {5, EncodeDuplicate(6), 105, EncodeDuplicate(7)};
  EXPECT_EQ(CombinedRow(Row(value), dst, kLogicalRows), Row(three + value));
}

TEST(CountMismatches, CountsElementsOfTheTokensGiven) {
  const std::vector<BFloat16> hidden = {ToBFloat16(1), ToBFloat16(2), ToBFloat16(3), ToBFloat16(4)};
  const std::vector<int32_t> dst = {5, 105, 7, kMaskedRoute, 0, 0};
  std::vector<BFloat16> output = {ToBFloat16(2), ToBFloat16(4), ToBFloat16(3),
                                  ToBFloat16(4), ToBFloat16(9), ToBFloat16(9)};
  EXPECT_EQ(CountMismatches(hidden, dst, output, 2, 2, kLogicalRows), 0);
  output[0] = ToBFloat16(1);
  output[3] = ToBFloat16(-4);
  EXPECT_EQ(CountMismatches(hidden, dst, output, 2, 2, kLogicalRows), 2);
}

}  // namespace
}  // namespace perigee
