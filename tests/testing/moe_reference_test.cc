#include "tests/testing/moe_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/common/bfloat16.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

TEST(MoeReferenceTest, EveryBFloat16GoesThereAndBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const BFloat16 bits{static_cast<uint16_t>(i)};
    const double value = Value(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(bits)));
      continue;
    }
    ASSERT_EQ(value, ToFloat(bits)) << i;
    ASSERT_EQ(Bits(value), bits) << i;
    ASSERT_EQ(RoundToBFloat16(value), value) << i;
  }
}

// The rounding that kernels use, held against one that was written another way.
TEST(MoeReferenceTest, RoundsAsTheKernelsDo) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 1000000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    const BFloat16 rounded = ToBFloat16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ToFloat(rounded)));
    } else {
      ASSERT_EQ(rounded, Bits(RoundToBFloat16(value))) << std::hexfloat << value;
    }
  }
}

TEST(MoeReferenceTest, TiesGoToEven) {
  EXPECT_EQ(RoundToBFloat16(1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(RoundToBFloat16(1.0 + 0x3p-8), 1.0 + 0x1p-6);
  EXPECT_EQ(RoundToBFloat16(1.0 + 0x1p-8 + 0x1p-30), 1.0 + 0x1p-7);
}

}  // namespace
}  // namespace perigee
