#include "kernels/plan/bytes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "kernels/plan/destination.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

constexpr Geometry kG1{
    .ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
const std::vector<int32_t> kG1Topk = {0, 1, 0, 2, 1, 0, 0, 3, 1, 0, 2, 0};
// 100 bytes a row, so that rows and route weights (4 bytes) can be told apart.
constexpr ElementCosts kCosts{.row_bytes = 100, .route_weights = true, .topk = 2};

// Destinations (rank:row, * = duplicate). Rank 0: 0:0 0:4* | 0:1 1:0 | 0:5 0:2*.
// Rank 1: 1:8 1:4* | 0:6 1:9 | 1:1 1:10*. Padding: rank 0 has 2 rows, rank 1 has 6.
TEST(Bytes, CountedByHand) {
  const auto plan = PlanGroup(kG1, kG1Topk, {});
  ASSERT_TRUE(plan.ok());
  const std::vector<RowCounts> rows = CountRows(*plan);
  EXPECT_EQ(DispatchTraffic(rows[0], kCosts),
            (Traffic{.read_bytes = 3 * 100 + 6 * 4 + 2 * 100,
                     .written_bytes = 3 * 100 + 5 * 4 + 2 * 104 + 2 * 100,
                     .sent_bytes = 104,
                     .received_bytes = 104}));
  EXPECT_EQ(DispatchTraffic(rows[1], kCosts),
            (Traffic{.read_bytes = 3 * 100 + 6 * 4 + 2 * 100,
                     .written_bytes = 3 * 100 + 5 * 4 + 6 * 104 + 2 * 100,
                     .sent_bytes = 104,
                     .received_bytes = 104}));
  for (int rank : {0, 1}) {
    EXPECT_EQ(LocalSumTraffic(rows[rank], kCosts),
              (Traffic{.read_bytes = 400, .written_bytes = 200}));
    EXPECT_EQ(CombineTraffic(rows[rank], kCosts), (Traffic{.read_bytes = 3 * 100 + 5 * 4,
                                                           .written_bytes = 3 * 100 + 6 * 4,
                                                           .sent_bytes = 104,
                                                           .received_bytes = 104}));
  }
  // Expert 0 of rank 0 in a slot of rank 1.
  const std::vector<Traffic> prefetch = PrefetchTraffic(plan->placement, 1000);
  EXPECT_EQ(prefetch[0], (Traffic{.sent_bytes = 1000}));
  EXPECT_EQ(prefetch[1], (Traffic{.written_bytes = 1000, .received_bytes = 1000}));
  const std::vector<Traffic> reduce = ReduceTraffic(plan->placement, 1000);
  EXPECT_EQ(reduce[0],
            (Traffic{.read_bytes = 1000, .written_bytes = 1000, .received_bytes = 1000}));
  EXPECT_EQ(reduce[1], (Traffic{.written_bytes = 1000, .sent_bytes = 1000}));
}

TEST(Bytes, AnExpertInSeveralSlotsIsReadAndWrittenOnce) {
  // Every route goes to expert 0, which the other ranks help with.
  const Geometry geometry{
      .ranks = 4, .experts = 4, .tokens = 2, .topk = 1, .slots = 1, .token_padding = 1};
  const std::vector<int32_t> topk(8, 0);
  const auto plan = PlanGroup(geometry, topk, {});
  ASSERT_TRUE(plan.ok());
  const std::vector<Traffic> reduce = ReduceTraffic(plan->placement, 10);
  EXPECT_EQ(reduce[0], (Traffic{.read_bytes = 10, .written_bytes = 10, .received_bytes = 30}));
  for (int rank : {1, 2, 3}) {
    EXPECT_EQ(reduce[rank], (Traffic{.written_bytes = 10, .sent_bytes = 10}));
  }
}

TEST(Bytes, WithoutRouteWeightsOnlyRowsCount) {
  const auto plan = PlanGroup(kG1, kG1Topk, {});
  ASSERT_TRUE(plan.ok());
  const std::vector<RowCounts> rows = CountRows(*plan);
  const ElementCosts costs{.row_bytes = 100, .route_weights = false, .topk = 2};
  EXPECT_EQ(
      DispatchTraffic(rows[1], costs),
      (Traffic{
          .read_bytes = 500, .written_bytes = 1100, .sent_bytes = 100, .received_bytes = 100}));
  EXPECT_EQ(
      CombineTraffic(rows[1], costs),
      (Traffic{.read_bytes = 300, .written_bytes = 300, .sent_bytes = 100, .received_bytes = 100}));
}

// Dispatch, done copy by copy on a set of rows.
std::vector<Traffic> BruteForceDispatch(const GroupInput& input, const GroupPlan& plan) {
  const Geometry& g = input.geometry;
  const auto logical_rows = static_cast<int32_t>(g.logical_rows());
  std::vector<Traffic> traffic(g.ranks);
  for (int32_t source = 0; source < g.ranks; ++source) {
    for (int32_t s = 0; s < input.token_counts[source]; ++s) {
      std::map<int32_t, int32_t> routes_to;  // rank -> routes
      for (int32_t k = 0; k < g.topk; ++k) {
        const int32_t dst = plan.dst_of(RankId(source))[s * g.topk + k];
        if (dst == INT32_MIN) continue;
        ++routes_to[(dst < 0 ? -dst - 1 : dst) / logical_rows];
      }
      if (!routes_to.empty()) traffic[source].read_bytes += 100;
      for (const auto& [rank, routes] : routes_to) {
        traffic[source].read_bytes += int64_t{4} * routes;
        const int64_t moved = 100 + 4 * routes;
        if (rank == source) {
          traffic[source].written_bytes += moved;
        } else {
          traffic[source].sent_bytes += moved;
          traffic[rank].received_bytes += moved;
        }
        if (routes > 1) traffic[rank].read_bytes += 100;
        traffic[rank].written_bytes += int64_t{100} * (routes - 1);
      }
    }
  }
  for (int32_t rank = 0; rank < g.ranks; ++rank) {
    for (size_t range = 1; range < plan.placement.zero_fill_of(RankId(rank)).size(); range += 2) {
      traffic[rank].written_bytes +=
          int64_t{104} * plan.placement.zero_fill_of(RankId(rank))[range];
    }
  }
  return traffic;
}

TEST(Bytes, SameAsCopyByCopyOnRandomGroups) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 500; ++i) {
    const GroupInput input = RandomGroup(random);
    const auto plan = PlanGroup(input.geometry, input.topk_experts, input.token_counts);
    ASSERT_TRUE(plan.ok());
    const std::vector<Traffic> expected = BruteForceDispatch(input, *plan);
    const std::vector<RowCounts> rows = CountRows(*plan);
    std::vector<Traffic> combines;
    for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
      EXPECT_EQ(DispatchTraffic(rows[rank], kCosts), expected[rank]) << input.Describe();
      combines.push_back(CombineTraffic(rows[rank], kCosts));
      EXPECT_EQ(combines.back().received_bytes, expected[rank].sent_bytes);
    }
    EXPECT_EQ(Total(expected).sent_bytes, Total(expected).received_bytes);
    EXPECT_EQ(Total(combines).sent_bytes, Total(combines).received_bytes);
  }
}

}  // namespace
}  // namespace perigee
