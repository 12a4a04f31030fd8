#include "kernels/algo/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

namespace perigee {
namespace {

TEST(SwiGluTest, IsCloseToFp64) {
  for (float x = -90.0f; x < 90.0f; x += 0.0625f) {
    const double exact = x / (1.0 + std::exp(-static_cast<double>(x)));
    // Below -88 the true value is smaller than this and the result is -0.
    EXPECT_NEAR(Silu(x), exact, 1e-6 * std::abs(exact) + 1e-36) << x;
  }
}

TEST(SwiGluTest, EndsOfTheRange) {
  EXPECT_EQ(Silu(0.0f), 0.0f);
  EXPECT_EQ(Silu(-1000.0f), 0.0f);
  EXPECT_EQ(Silu(1000.0f), 1000.0f);
  EXPECT_EQ(Silu(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(Silu(NAN)));
  EXPECT_TRUE(std::isnan(ToFloat(SwiGlu(1.0f, NAN))));
}

TEST(SwiGluTest, RoundsTheProductOnce) {
  EXPECT_EQ(SwiGlu(1000.0f, 0.5f), ToBFloat16(500.0f));
  EXPECT_EQ(SwiGlu(2.0f, 3.0f), ToBFloat16(Silu(2.0f) * 3.0f));
}

}  // namespace
}  // namespace perigee
