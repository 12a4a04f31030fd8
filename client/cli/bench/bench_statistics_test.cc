#include "client/cli/bench/bench_statistics.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SlowestOfRanks, TakesTheLongestTimeOfEverySample) {
  EXPECT_THAT(SlowestOfRanks({{5, 1, 9}, {4, 7, 9}, {1, 2, 3}}), ElementsAre(5, 7, 9));
  EXPECT_THAT(SlowestOfRanks({{5, 1}}), ElementsAre(5, 1));
  EXPECT_THAT(SlowestOfRanks({}), IsEmpty());
}

// The median of what the slowest ranks took is not that of the slowest rank's median.
TEST(SlowestOfRanks, ComesBeforeTheMedian) {
  EXPECT_EQ(SpreadOf(SlowestOfRanks({{1000, 9000, 1000}, {9000, 1000, 1000}})).median_us, 9);
}

TEST(SpreadOf, IsInMicrosecondsWhateverTheOrder) {
  const Spread spread = SpreadOf({5000, 1000, 4000, 2000, 3000});
  EXPECT_EQ(spread.samples, 5);
  EXPECT_EQ(spread.median_us, 3);
  EXPECT_EQ(spread.p25_us, 2);
  EXPECT_EQ(spread.p75_us, 4);
  EXPECT_EQ(spread.min_us, 1);
  EXPECT_EQ(spread.max_us, 5);
}

TEST(SpreadOf, InterpolatesBetweenSamples) {
  const Spread spread = SpreadOf({1000, 2000, 3000, 4000});
  EXPECT_EQ(spread.median_us, 2.5);
  EXPECT_EQ(spread.p25_us, 1.75);
  EXPECT_EQ(spread.p75_us, 3.25);
}

TEST(SpreadOf, HasMeanAndDeviation) {
  const Spread spread = SpreadOf({1000, 2000, 3000, 6000});
  EXPECT_DOUBLE_EQ(spread.mean_us, 3);
  EXPECT_NEAR(spread.sd_us, std::sqrt(14.0 / 3), 1e-9);
  EXPECT_EQ(SpreadOf({7000}).mean_us, 7);
  EXPECT_EQ(SpreadOf({7000}).sd_us, 0);
}

TEST(SpreadOf, TakesOneSampleOrNone) {
  EXPECT_EQ(SpreadOf({7000}).median_us, 7);
  EXPECT_EQ(SpreadOf({7000}).p75_us, 7);
  EXPECT_EQ(SpreadOf({}).samples, 0);
  EXPECT_EQ(SpreadOf({}).median_us, 0);
}

}  // namespace
}  // namespace perigee
