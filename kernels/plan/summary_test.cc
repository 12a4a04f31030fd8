#include "kernels/plan/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/plan/plan.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;

TEST(Summary, LoadsWithoutBalancing) {
  const Geometry geometry{
      .ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
  const auto plan = PlanGroup(geometry, {0, 1, 0, 2, 1, 0, 0, 3, 1, 0, 2, 0}, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(ExpertLoads(plan->placement), ElementsAre(6, 3, 2, 1));
  EXPECT_THAT(HomeLoads(plan->placement), ElementsAre(9, 3));
  EXPECT_THAT(HomeRows(plan->placement), ElementsAre(8 + 4, 4 + 4));
  EXPECT_DOUBLE_EQ(HottestOverMean(HomeLoads(plan->placement)), 1.5);
  EXPECT_DOUBLE_EQ(HottestOverMean(ExpertLoads(plan->placement)), 2.0);
  EXPECT_DOUBLE_EQ(HottestOverMean(plan->placement.load), 1.0);
  EXPECT_DOUBLE_EQ(HottestOverMean({0, 0}), 1.0);
}

}  // namespace
}  // namespace perigee
