// Which rows one rank sends, which it receives and where they go, as lists that say it in order: a
// pure function of the whole group's plan, so what a rank sends is what its peer expects.
#ifndef PERIGEE_KERNELS_STAGED_ROW_LISTS_H_
#define PERIGEE_KERNELS_STAGED_ROW_LISTS_H_

#include <cstdint>
#include <vector>

#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"
#include "kernels/plan/plan.h"

namespace perigee {

// Rows are local to the rank's shard. Counts are [R]: how many of the list before belong to each
// rank, in order of ranks; this rank is one of them.
struct RowLists {
  // Own tokens by the rank they go to, once for each.
  std::vector<int32_t> sent_tokens;
  std::vector<int32_t> sent_token_counts;
  // The primary rows that tokens of each rank get here.
  std::vector<int32_t> received_rows;
  std::vector<int32_t> received_row_counts;
  // Own routes, s * K + k, by the rank they go to.
  std::vector<int32_t> sent_routes;
  std::vector<int32_t> sent_route_counts;
  // The rows that routes of each rank get here.
  std::vector<int32_t> received_routes;
  std::vector<int32_t> received_route_counts;
  // Every duplicate row here, and its primary.
  std::vector<int32_t> duplicates;
  std::vector<int32_t> duplicated;
  std::vector<int32_t> padding;
  // Sums of a primary and its duplicates, in order of k: where each goes, where its rows end in
  // group_rows.
  std::vector<int32_t> group_primaries;
  std::vector<int32_t> group_ends;
  std::vector<int32_t> group_rows;
  // Sums of an own token's rows, in order of k: [S] where they end in token_rows, whose elements
  // are places in sent_tokens.
  std::vector<int32_t> token_ends;
  std::vector<int32_t> token_rows;
};

RowLists MakeRowLists(const GroupPlan& plan, RankId rank);

// The most tokens that a rank sends, and the most rows that it receives: a token goes to a rank
// once, and no rank computes more than S * K rows.
int64_t MostStagedRows(const Geometry& geometry);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_ROW_LISTS_H_
