#include "client/cli/run/layer_compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"

namespace perigee {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor Output(const std::vector<float>& values) {
  Tensor tensor{v1::TENSOR_DTYPE_BFLOAT16, {static_cast<int64_t>(values.size()), 1}, {}};
  tensor.data.resize(values.size() * sizeof(BFloat16));
  for (size_t i = 0; i < values.size(); ++i) {
    const BFloat16 value = ToBFloat16(values[i]);
    std::memcpy(tensor.data.data() + i * sizeof(value), &value, sizeof(value));
  }
  return tensor;
}

Comparison CompareWith(const std::vector<Tensor>& outputs, const std::vector<float>& expected) {
  return Compare(outputs, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(expected.data()),
                                              expected.size() * sizeof(float)));
}

TEST(CompareTest, ErrorsAreOfTheWholeOutput) {
  const Comparison comparison = CompareWith({Output({3, 0}), Output({0, 5})}, {3, 0, 0, 4});
  EXPECT_DOUBLE_EQ(comparison.largest_absolute_error, 1);
  EXPECT_DOUBLE_EQ(comparison.relative_error, 0.2);
  EXPECT_FALSE(comparison.passes());
}

TEST(CompareTest, TheLimitDecides) {
  EXPECT_TRUE(CompareWith({Output({1})}, {1.0f / 1.004f}).passes());
  EXPECT_FALSE(CompareWith({Output({1})}, {1.0f / 1.006f}).passes());
}

TEST(CompareTest, NonFiniteOutputsFailWhereTheyAreNotExpected) {
  EXPECT_FALSE(CompareWith({Output({1, kNaN})}, {1, 0}).passes());
  EXPECT_FALSE(CompareWith({Output({1, kInfinity})}, {1, 0}).passes());
  EXPECT_FALSE(CompareWith({Output({1, 0})}, {1, kNaN}).passes());
  EXPECT_FALSE(CompareWith({Output({1, kInfinity})}, {1, -kInfinity}).passes());
  const Comparison same = CompareWith({Output({1, kNaN, kInfinity})}, {1, kNaN, kInfinity});
  EXPECT_TRUE(same.passes());
  EXPECT_EQ(same.relative_error, 0);
}

TEST(CompareTest, AgainstZerosAnyDifferenceFails) {
  EXPECT_TRUE(CompareWith({Output({0, 0})}, {0, 0}).passes());
  EXPECT_FALSE(CompareWith({Output({0, 1e-6f})}, {0, 0}).passes());
}

TEST(CompareTest, NoTokensPass) { EXPECT_TRUE(CompareWith({Output({})}, {}).passes()); }

}  // namespace
}  // namespace perigee
