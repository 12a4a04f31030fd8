#include "kernels/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kernels/plan/destination.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Geometry kGeometry{
    .ranks = 2, .experts = 4, .tokens = 2, .topk = 2, .slots = 2, .token_padding = 4};

void ExpectRefused(absl::Span<const int32_t> topk, absl::Span<const int32_t> token_counts,
                   const std::string& what, const Geometry& geometry = kGeometry) {
  const auto plan = PlanGroup(geometry, topk, token_counts);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(what));
}

TEST(PlanGroup, RefusesBadInput) {
  const std::vector<int32_t> topk = {0, 1, 0, 1, 0, 1, 2, 4};
  ExpectRefused(topk, {}, "rank 1 token 1 k 1: expert id 4, expected -1 (masked) to 3");
  EXPECT_TRUE(PlanGroup(kGeometry, topk, {2, 1}).ok());
  ExpectRefused({0, 1}, {}, "there are 2 routes, expected 2 ranks * 4");
  ExpectRefused(topk, {1, 1, 1}, "there are 3 token counts, expected 2");
  ExpectRefused(topk, {1, 3}, "token count of rank 1 is 3, expected 0 to 2");
  Geometry odd = kGeometry;
  odd.experts = 5;
  ExpectRefused(topk, {}, "experts is 5, expected a multiple of ranks (2)", odd);
}

TEST(PlanGroup, NoTokensAtAll) {
  const auto plan = PlanGroup(kGeometry, std::vector<int32_t>(8, 77), {0, 0});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->placement.load, ElementsAre(0, 0));
  EXPECT_THAT(plan->placement.experts_to_copy, Each(-1));
  EXPECT_THAT(plan->placement.cu_seqlens, Each(0));
  EXPECT_THAT(plan->placement.group_of, Each(-1));
  EXPECT_THAT(plan->dst, Each(kMaskedRoute));

  Geometry empty = kGeometry;
  empty.tokens = 0;
  EXPECT_TRUE(PlanGroup(empty, {}, {}).ok());
}

TEST(PlanGroup, MoreRemoteExpertsThanSlotsStayInTheirGlobalGroup) {
  Geometry geometry = kGeometry;
  geometry.slots = 0;
  const auto plan = PlanGroup(geometry, {0, 1, 0, 1, 0, 1, 0, 1}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Rank 1 gets all of expert 0 (a tie goes to the lowest id), where expert 0's own group is.
  EXPECT_EQ(plan->placement.alloc_at(ExpertId(0), RankId(1)), 4);
  EXPECT_EQ(plan->placement.group_at(RankId(1), ExpertId(0)), 0);
  EXPECT_THAT(plan->placement.remote_stats, ElementsAre(0, 0, 1, 0));
  EXPECT_TRUE(plan->placement.experts_to_copy.empty());
}

TEST(PlanGroup, EveryRankOfThe128) {
  Geometry geometry{
      .ranks = 128, .experts = 896, .tokens = 64, .topk = 16, .slots = 7, .token_padding = 128};
  std::mt19937_64 random(TestSeed());
  std::vector<int32_t> topk(int64_t{geometry.ranks} * geometry.routes());
  for (int32_t& expert : topk) expert = static_cast<int32_t>(random() % 7);  // all of rank 0's
  const auto plan = PlanGroup(geometry, topk, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->placement.load, Each(geometry.routes()));
}

}  // namespace
}  // namespace perigee
