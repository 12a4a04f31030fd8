// What every plan must satisfy, on random groups, and equality with the reference on each of them.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kernels/plan/compare.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/random_group.h"
#include "kernels/plan/reference.h"
#include "kernels/plan/routes.h"

namespace perigee {
namespace {

constexpr int kGroups = 10000;

Matrix ByRank(const GroupInput& input) {
  const int32_t routes = input.geometry.routes();
  Matrix rows;
  for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
    const auto first = input.topk_experts.begin() + int64_t{rank} * routes;
    rows.emplace_back(first, first + routes);
  }
  return rows;
}

// The ids of the live routes in (rank, token, k) order, by rank.
Matrix LiveRoutes(const GroupInput& input) {
  Matrix live = ByRank(input);
  for (size_t rank = 0; rank < live.size(); ++rank) {
    live[rank].resize(int64_t{input.token_counts[rank]} * input.geometry.topk);
    std::erase(live[rank], -1);
  }
  return live;
}

void CheckLoads(const GroupInput& input, const GroupPlan& plan) {
  const Geometry& g = input.geometry;
  std::vector<int32_t> expert_counts(g.experts, 0);
  int64_t total = 0;
  for (const auto& routes : LiveRoutes(input)) {
    for (int32_t expert : routes) ++expert_counts[expert];
    total += static_cast<int64_t>(routes.size());
  }
  for (int32_t rank = 0; rank < g.ranks; ++rank) {
    int64_t load = 0;
    int32_t remote = 0;
    for (int32_t expert = 0; expert < g.experts; ++expert) {
      const int32_t rows = plan.placement.alloc_at(ExpertId(expert), RankId(rank));
      ASSERT_GE(rows, 0);
      load += rows;
      remote += rows > 0 && expert / g.experts_per_rank() != rank;
    }
    EXPECT_EQ(load, total / g.ranks + (rank < total % g.ranks)) << "rank " << rank;
    EXPECT_EQ(load, plan.placement.load[rank]);
    EXPECT_LE(remote, g.experts_per_rank());
    EXPECT_LE(plan.placement.used_rows(RankId(rank)), g.logical_rows());
  }
  for (int32_t expert = 0; expert < g.experts; ++expert) {
    int32_t rows = 0;
    for (int32_t rank = 0; rank < g.ranks; ++rank) {
      rows += plan.placement.alloc_at(ExpertId(expert), RankId(rank));
    }
    EXPECT_EQ(rows, expert_counts[expert]) << "expert " << expert;
  }
}

// Every live route has a row of its own inside its expert's group, every other one is masked; the
// group starts where group_start says.
void CheckDestinations(const GroupInput& input, const GroupPlan& plan) {
  const Geometry& g = input.geometry;
  const auto logical_rows = static_cast<int32_t>(g.logical_rows());
  std::set<int32_t> taken;
  for (size_t i = 0; i < plan.dst.size(); ++i) {
    const auto rank = static_cast<int32_t>(i / g.routes());
    const int32_t token = static_cast<int32_t>(i) % g.routes() / g.topk;
    const int32_t expert = input.topk_experts[i];
    const bool live = token < input.token_counts[rank] && expert != -1;
    ASSERT_EQ(IsMasked(plan.dst[i]), !live);
    if (!live) continue;
    const int32_t raw = DecodeRow(plan.dst[i]);
    ASSERT_TRUE(taken.insert(raw).second) << "row " << raw << " twice";
    const RankId to(RankOf(raw, logical_rows));
    ASSERT_LT(to.value, g.ranks);
    const int32_t group = plan.placement.group_at(to, ExpertId(expert));
    ASSERT_GE(group, 0);
    if (group >= g.experts) {
      EXPECT_EQ(plan.placement.experts_to_copy_of(to)[group - g.experts], expert);
    } else {
      EXPECT_EQ(group, expert);
    }
    const auto ends = plan.placement.cu_seqlens_of(to);
    const int32_t start = group == 0 ? 0 : ends[group - 1];
    EXPECT_EQ(start, plan.placement.group_start_at(to, ExpertId(expert)));
    const int32_t padding = plan.placement.zero_fill_of(to)[2 * group + 1];
    EXPECT_GE(LocalRow(raw, logical_rows), start);
    EXPECT_LT(LocalRow(raw, logical_rows), ends[group] - padding);
  }
}

// Masked routes leave no trace: with them cut out, the others go where they went. The cut input has
// one route a token, so every route is a primary and the rows are the raw ones.
void CheckMaskedRoutesLeaveNoTrace(const GroupInput& input, const GroupPlan& plan) {
  GroupInput cut = input;
  cut.geometry.tokens = input.geometry.routes();
  cut.geometry.topk = 1;
  cut.topk_experts.clear();
  cut.token_counts.clear();
  for (std::vector<int32_t>& routes : LiveRoutes(input)) {
    cut.token_counts.push_back(static_cast<int32_t>(routes.size()));
    routes.resize(cut.geometry.tokens, -1);
    cut.topk_experts.insert(cut.topk_experts.end(), routes.begin(), routes.end());
  }
  const auto cut_plan = PlanGroup(cut.geometry, cut.topk_experts, cut.token_counts);
  ASSERT_TRUE(cut_plan.ok()) << cut_plan.status();
  std::vector<int32_t> rows, cut_rows;
  for (int32_t dst : plan.dst) {
    if (!IsMasked(dst)) rows.push_back(DecodeRow(dst));
  }
  for (int32_t dst : cut_plan->dst) {
    if (!IsMasked(dst)) cut_rows.push_back(dst);
  }
  EXPECT_EQ(rows, cut_rows);
}

// A rank that has only the histograms and its own routes comes to its part of the group's plan.
void CheckEachRanksView(const GroupInput& input, const GroupPlan& plan) {
  const Placement placement = Place(input.geometry, plan.counts);
  const int32_t routes = input.geometry.routes();
  for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
    std::vector<int32_t> dst(routes, 12345);  // poison
    AssignRoutes(placement, RankId(rank), plan.counts,
                 absl::MakeConstSpan(input.topk_experts).subspan(int64_t{rank} * routes, routes),
                 input.token_counts[rank], absl::MakeSpan(dst));
    const auto expected = plan.dst_of(RankId(rank));
    EXPECT_TRUE(std::equal(dst.begin(), dst.end(), expected.begin(), expected.end()));
  }
}

TEST(Property, TenThousandRandomGroups) {
  std::mt19937_64 random(TestSeed());
  int64_t transfers = 0, beyond_slots = 0, duplicates = 0;
  for (int i = 0; i < kGroups; ++i) {
    const GroupInput input = RandomGroup(random);
    const auto plan = PlanGroup(input.geometry, input.topk_experts, input.token_counts);
    ASSERT_TRUE(plan.ok()) << plan.status() << "\n" << input.Describe();
    ExpectSamePlan(*plan, PlanByTheRules(input.geometry, ByRank(input), input.token_counts));
    CheckLoads(input, *plan);
    CheckDestinations(input, *plan);
    CheckMaskedRoutesLeaveNoTrace(input, *plan);
    CheckEachRanksView(input, *plan);
    ASSERT_FALSE(HasFailure()) << "group " << i << ": " << input.Describe();
    for (int32_t moved : plan->placement.transfers) transfers += moved > 0;
    for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
      beyond_slots += plan->placement.remote_stats[size_t{2} * rank] > input.geometry.slots;
      duplicates += static_cast<int64_t>(plan->duplicates[rank].rows.size());
    }
  }
  // The groups exercise what they are meant to.
  EXPECT_GT(transfers, kGroups);
  EXPECT_GT(beyond_slots, kGroups / 10);
  EXPECT_GT(duplicates, kGroups);
}

}  // namespace
}  // namespace perigee
