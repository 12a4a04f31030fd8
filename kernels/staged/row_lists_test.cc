#include "kernels/staged/row_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/plan/destination.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

// The elements of a list that lie at rank `of`.
std::vector<int32_t> PartOf(const std::vector<int32_t>& list, const std::vector<int32_t>& counts,
                            int32_t of) {
  const auto begin = list.begin() + std::accumulate(counts.begin(), counts.begin() + of, 0);
  return std::vector<int32_t>(begin, begin + counts[of]);
}

// Carries a mark with every row and route, as the rows would travel: what comes where, and back.
class Carried {
 public:
  explicit Carried(const GroupPlan& plan) : plan_(plan) {
    const Geometry& geometry = plan.geometry();
    for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
      lists_.push_back(MakeRowLists(plan, RankId(rank)));
      rows_.emplace_back(geometry.logical_rows(), -1);
      routes_.emplace_back(geometry.logical_rows(), -1);
    }
    for (int32_t from = 0; from < geometry.ranks; ++from) {
      for (int32_t to = 0; to < geometry.ranks; ++to) Carry(from, to);
    }
    for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
      const RowLists& lists = lists_[rank];
      for (size_t i = 0; i < lists.duplicates.size(); ++i) {
        rows_[rank][lists.duplicates[i]] = rows_[rank][lists.duplicated[i]];
      }
    }
  }

  const RowLists& lists(int32_t rank) const { return lists_[rank]; }
  // Token and route, rank * routes + index, whose row is at a row of a rank; -1: none.
  int32_t token_at(int32_t rank, int32_t row) const { return rows_[rank][row]; }
  int32_t route_at(int32_t rank, int32_t row) const { return routes_[rank][row]; }

 private:
  void Carry(int32_t from, int32_t to) {
    const RowLists& sent = lists_[from];
    const RowLists& received = lists_[to];
    const auto tokens = PartOf(sent.sent_tokens, sent.sent_token_counts, to);
    const auto rows = PartOf(received.received_rows, received.received_row_counts, from);
    ASSERT_EQ(tokens.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows_[to][rows[i]] = from * plan_.geometry().tokens + tokens[i];
    }
    const auto routes = PartOf(sent.sent_routes, sent.sent_route_counts, to);
    const auto places = PartOf(received.received_routes, received.received_route_counts, from);
    ASSERT_EQ(routes.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      routes_[to][places[i]] = from * plan_.geometry().routes() + routes[i];
    }
  }

  const GroupPlan& plan_;
  std::vector<RowLists> lists_;
  std::vector<std::vector<int32_t>> rows_;
  std::vector<std::vector<int32_t>> routes_;
};

// Every route's row holds its token, and nothing else is written but padding.
void ExpectEveryRouteArrives(const GroupPlan& plan, const Carried& carried) {
  const Geometry& geometry = plan.geometry();
  const auto logical_rows = static_cast<int32_t>(geometry.logical_rows());
  std::vector<int64_t> written(geometry.ranks);
  for (int32_t i = 0; i < static_cast<int32_t>(plan.dst.size()); ++i) {
    if (IsMasked(plan.dst[i])) continue;
    const int32_t raw = DecodeRow(plan.dst[i]);
    const int32_t rank = RankOf(raw, logical_rows);
    const int32_t row = LocalRow(raw, logical_rows);
    ASSERT_EQ(carried.token_at(rank, row), i / geometry.topk) << "route " << i;
    ASSERT_EQ(carried.route_at(rank, row), i) << "route " << i;
    ++written[rank];
  }
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    int64_t rows = 0;
    for (int32_t row = 0; row < logical_rows; ++row) rows += carried.token_at(rank, row) >= 0;
    EXPECT_EQ(rows, written[rank]);
    const auto padding = static_cast<int64_t>(carried.lists(rank).padding.size());
    EXPECT_EQ(rows + padding, plan.placement.used_rows(RankId(rank)));
    for (const int32_t row : carried.lists(rank).padding) {
      EXPECT_EQ(carried.token_at(rank, row), -1);
    }
  }
}

// A token's terms are its primaries, in order of k.
void ExpectTerms(const GroupPlan& plan, int32_t rank, const RowLists& lists) {
  const Geometry& geometry = plan.geometry();
  const auto logical_rows = static_cast<int32_t>(geometry.logical_rows());
  const absl::Span<const int32_t> dst = plan.dst_of(RankId(rank));
  ASSERT_EQ(lists.token_ends.size(), static_cast<size_t>(geometry.tokens));
  size_t term = 0;
  for (int32_t token = 0; token < geometry.tokens; ++token) {
    for (int32_t k = 0; k < geometry.topk; ++k) {
      const int32_t to = dst[token * geometry.topk + k];
      if (!IsPrimary(to)) continue;
      ASSERT_LT(term, lists.token_rows.size());
      const int32_t place = lists.token_rows[term++];
      ASSERT_EQ(lists.sent_tokens[place], token);
      int32_t target = 0;
      int32_t end = lists.sent_token_counts[0];
      while (place >= end) end += lists.sent_token_counts[++target];
      EXPECT_EQ(target, RankOf(to, logical_rows));
    }
    EXPECT_EQ(lists.token_ends[token], static_cast<int32_t>(term));
  }
}

TEST(RowListsTest, WhatOneRankSendsIsWhatAnotherExpects) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    const GroupInput input = RandomGroup(random);
    SCOPED_TRACE(input.Describe());
    const auto plan = PlanGroup(input.geometry, input.topk_experts, input.token_counts);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Carried carried(*plan);
    if (testing::Test::HasFailure()) return;
    ExpectEveryRouteArrives(*plan, carried);
    for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
      const RowLists& lists = carried.lists(rank);
      ExpectTerms(*plan, rank, lists);
      const auto most = static_cast<size_t>(MostStagedRows(input.geometry));
      EXPECT_LE(lists.sent_tokens.size(), most);
      EXPECT_LE(lists.received_rows.size(), most);
    }
  }
}

}  // namespace
}  // namespace perigee
