#include "kernels/staged/row_lists.h"

#include <algorithm>

#include "kernels/plan/destination.h"

namespace perigee {
namespace {

// Calls each(route, dst) for the routes of `source` that go to `target`, in order.
template <typename Each>
void ForRoutesBetween(const GroupPlan& plan, RankId source, int32_t target, const Each& each) {
  const auto logical_rows = static_cast<int32_t>(plan.geometry().logical_rows());
  const absl::Span<const int32_t> dst = plan.dst_of(source);
  for (int32_t route = 0; route < static_cast<int32_t>(dst.size()); ++route) {
    if (IsMasked(dst[route])) continue;
    const int32_t raw = DecodeRow(dst[route]);
    if (RankOf(raw, logical_rows) == target) each(route, dst[route], LocalRow(raw, logical_rows));
  }
}

void ListSent(const GroupPlan& plan, RankId rank, RowLists& lists) {
  const int32_t topk = plan.geometry().topk;
  // Places in sent_tokens of a token's rows, by route: only primaries have one.
  std::vector<int32_t> places(plan.geometry().routes(), -1);
  for (int32_t target = 0; target < plan.geometry().ranks; ++target) {
    const size_t tokens = lists.sent_tokens.size();
    const size_t routes = lists.sent_routes.size();
    ForRoutesBetween(plan, rank, target, [&](int32_t route, int32_t dst, int32_t) {
      lists.sent_routes.push_back(route);
      if (!IsPrimary(dst)) return;
      places[route] = static_cast<int32_t>(lists.sent_tokens.size());
      lists.sent_tokens.push_back(route / topk);
    });
    lists.sent_token_counts.push_back(static_cast<int32_t>(lists.sent_tokens.size() - tokens));
    lists.sent_route_counts.push_back(static_cast<int32_t>(lists.sent_routes.size() - routes));
  }
  for (int32_t token = 0; token < plan.geometry().tokens; ++token) {
    for (int32_t route = token * topk; route < (token + 1) * topk; ++route) {
      if (places[route] >= 0) lists.token_rows.push_back(places[route]);
    }
    lists.token_ends.push_back(static_cast<int32_t>(lists.token_rows.size()));
  }
}

void ListReceived(const GroupPlan& plan, RankId rank, RowLists& lists) {
  for (int32_t source = 0; source < plan.geometry().ranks; ++source) {
    const size_t rows = lists.received_rows.size();
    const size_t routes = lists.received_routes.size();
    ForRoutesBetween(plan, RankId(source), rank.value, [&](int32_t, int32_t dst, int32_t row) {
      lists.received_routes.push_back(row);
      if (IsPrimary(dst)) lists.received_rows.push_back(row);
    });
    lists.received_row_counts.push_back(static_cast<int32_t>(lists.received_rows.size() - rows));
    lists.received_route_counts.push_back(
        static_cast<int32_t>(lists.received_routes.size() - routes));
  }
}

void ListDuplicates(const DuplicateGroups& duplicates, RowLists& lists) {
  for (const DuplicateGroup& group : duplicates.groups) {
    const auto first = duplicates.rows.begin() + group.start;
    lists.duplicates.insert(lists.duplicates.end(), first, first + group.count);
    lists.duplicated.insert(lists.duplicated.end(), group.count, group.primary_row);
    lists.group_primaries.push_back(group.primary_row);
    lists.group_rows.push_back(group.primary_row);
    lists.group_rows.insert(lists.group_rows.end(), first, first + group.count);
    lists.group_ends.push_back(static_cast<int32_t>(lists.group_rows.size()));
  }
}

void ListPadding(absl::Span<const int32_t> zero_fill_ranges, RowLists& lists) {
  for (size_t i = 0; i < zero_fill_ranges.size(); i += 2) {
    for (int32_t row = 0; row < zero_fill_ranges[i + 1]; ++row) {
      lists.padding.push_back(zero_fill_ranges[i] + row);
    }
  }
}

}  // namespace

RowLists MakeRowLists(const GroupPlan& plan, RankId rank) {
  RowLists lists;
  ListSent(plan, rank, lists);
  ListReceived(plan, rank, lists);
  ListDuplicates(plan.duplicates[rank.value], lists);
  ListPadding(plan.placement.zero_fill_of(rank), lists);
  return lists;
}

int64_t MostStagedRows(const Geometry& geometry) {
  return int64_t{geometry.tokens} * std::min(geometry.topk, geometry.ranks);
}

}  // namespace perigee
