#include "worker/ops/plan_summary.h"

#include "gtest/gtest.h"
#include "kernels/plan/plan.h"

namespace perigee {
namespace {

// A plan that is small enough to count by hand: R2 E4 S3 K2 P4 B2, expert 0 is hot.
//   rank 0: 0,1 | 0,2 | 1,0      rank 1: 0,3 | 1,0 | 2,0
// Experts 0 and 1 live on rank 0 with 9 routes, 2 and 3 on rank 1 with 3; each rank computes 6.
class PlanSummaryTest : public ::testing::Test {
 protected:
  v1::PlanSummary Summarise(int32_t rank) const {
    const GroupPlan plan = *PlanGroup(geometry_, {0, 1, 0, 2, 1, 0, 0, 3, 1, 0, 2, 0}, {});
    PlanTensors tensors;
    const absl::Span<const int32_t> dst = plan.dst_of(RankId(rank));
    tensors.dst.assign(dst.begin(), dst.end());
    tensors.load = plan.placement.load;
    tensors.home_load = {9, 3};
    tensors.remote_stats = {plan.placement.remote_stats[2 * rank],
                            plan.placement.remote_stats[2 * rank + 1]};
    tensors.duplicate_rows = plan.duplicates[rank].rows;
    return SummarisePlan(tensors, geometry_, RankId(rank), 3);
  }
  const Geometry geometry_{2, 4, 3, 2, 2, 4};
};

// dst of rank 0 is 0,-5 | 1,18 | 5,-3; of rank 1 26,-23 | 6,27 | 19,-29; rows of rank 1 from 18.
TEST_F(PlanSummaryTest, TheHotRankGivesAway) {
  const v1::PlanSummary summary = Summarise(0);
  EXPECT_EQ(summary.home_load(), 9);
  EXPECT_EQ(summary.balanced_load(), 6);
  EXPECT_EQ(summary.replicas(), 0);
  EXPECT_EQ(summary.replicated(), 1);
  EXPECT_EQ(summary.rows_sent(), 1);
  EXPECT_EQ(summary.rows_received(), 1);
  EXPECT_EQ(summary.duplicate_rows(), 2);
  EXPECT_EQ(summary.token_count(), 3);
}

TEST_F(PlanSummaryTest, TheColdRankTakes) {
  const v1::PlanSummary summary = Summarise(1);
  EXPECT_EQ(summary.home_load(), 3);
  EXPECT_EQ(summary.balanced_load(), 6);
  EXPECT_EQ(summary.replicas(), 1);
  EXPECT_EQ(summary.replicated(), 0);
  EXPECT_EQ(summary.rows_sent(), 1);
  EXPECT_EQ(summary.rows_received(), 1);
  EXPECT_EQ(summary.duplicate_rows(), 2);
}

}  // namespace
}  // namespace perigee
