#include "kernels/host/expert_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/algo/swiglu.h"

namespace perigee {
namespace {

std::vector<BFloat16> Bits(const std::vector<float>& values) {
  std::vector<BFloat16> bits;
  for (float value : values) bits.push_back(ToBFloat16(value));
  return bits;
}

// With identity-like matrices each output element is one product, worked out by hand.
class ExpertRowsTest : public testing::Test {
 protected:
  ExpertRowsTest() {
    std::vector<float> identity(8 * 8, 0.0f);
    std::vector<float> doubled(8 * 8, 0.0f);
    for (int i = 0; i < 8; ++i) {
      identity[i * 8 + i] = 1.0f;
      doubled[i * 8 + i] = 2.0f;
    }
    gate_ = Bits(identity);
    up_ = Bits(doubled);
    down_ = Bits(identity);
  }
  std::vector<BFloat16> Run(const std::vector<BFloat16>& rows, const float* row_weights) {
    std::vector<BFloat16> output(rows.size());
    RunExpertRows({8, 8}, {gate_.data(), up_.data(), down_.data()},
                  {rows.data(), row_weights, output.data(), static_cast<int32_t>(rows.size() / 8)});
    return output;
  }

  std::vector<BFloat16> gate_;
  std::vector<BFloat16> up_;
  std::vector<BFloat16> down_;
};

TEST_F(ExpertRowsTest, EachElementByHand) {
  const std::vector<BFloat16> rows = Bits({0.0f, 1.0f, -1.0f, 0.5f, 3.0f, -20.0f, 100.0f, 0.1f});
  const std::vector<BFloat16> output = Run(rows, nullptr);
  for (int i = 0; i < 8; ++i) {
    const double x = ToFloat(rows[i]);
    const double h = x / (1.0 + std::exp(-x)) * 2.0 * x;
    EXPECT_EQ(output[i], ToBFloat16(static_cast<float>(h))) << i;
  }
}

// h is rounded to bf16 before the weight scales it: 1/3 of a rounded h is not a rounded third.
TEST_F(ExpertRowsTest, RoundsTwice) {
  int different = 0;
  for (int i = 1; i < 100; ++i) {
    std::vector<BFloat16> row(8, ToBFloat16(0.03f * static_cast<float>(i)));
    const float weight = 1.0f / 3.0f;
    const float x = ToFloat(row[0]);
    const BFloat16 h = SwiGlu(x, 2.0f * x);
    EXPECT_EQ(Run(row, &weight)[0], ToBFloat16(ToFloat(h) * weight));
    different += ToBFloat16(Silu(x) * 2.0f * x * weight) == Run(row, &weight)[0] ? 0 : 1;
  }
  EXPECT_GT(different, 0);
}

TEST_F(ExpertRowsTest, AFullChunkMayBeDoneInPlace) {
  std::vector<float> values(kExpertRows * 8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  std::vector<BFloat16> rows = Bits(values);
  const std::vector<BFloat16> expected = Run(rows, nullptr);
  RunExpertRows({8, 8}, {gate_.data(), up_.data(), down_.data()},
                {rows.data(), nullptr, rows.data(), kExpertRows});
  EXPECT_TRUE(rows == expected);
}

}  // namespace
}  // namespace perigee
