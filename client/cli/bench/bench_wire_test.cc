#include "client/cli/bench/bench_wire.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

ShapeResult Measured() {
  ShapeResult shape;
  shape.copy = {.rank_bytes = 1'000'000, .own_us = 10, .link_us = 20};
  const MovedBytes bytes{16'000'000, 2'000'000, 3'000'000};
  for (const auto& [name, us] : {std::pair{"dispatch", 900.0},
                                 {"dispatch_saved_plan", 100.0},
                                 {"dispatch_saved_plan_back_to_back", 75.0}}) {
    shape.operations.push_back({name, Spread{.median_us = us}, bytes, absl::nullopt});
  }
  return shape;
}

TEST(WireRatesOf, AreLinkBytesOverTheTimesWithoutPlanning) {
  const auto rates = WireRatesOf(Measured());
  ASSERT_TRUE(rates.has_value());
  EXPECT_EQ(rates->link_bytes, 3'000'000);
  EXPECT_EQ(rates->dispatch_bytes_per_us, 30'000);
  EXPECT_EQ(rates->back_to_back_bytes_per_us, 40'000);
  EXPECT_EQ(rates->copy_bytes_per_us, 50'000);
}

TEST(WireRatesOf, NothingIsClaimedOfWhatWasNotMeasured) {
  ShapeResult alone = Measured();
  alone.copy.link_us = 0;
  EXPECT_FALSE(WireRatesOf(alone).has_value());
  ShapeResult planned = Measured();
  planned.operations.resize(2);
  EXPECT_FALSE(WireRatesOf(planned).has_value());
  EXPECT_FALSE(WireRatesOf(ShapeResult()).has_value());
}

}  // namespace
}  // namespace perigee
