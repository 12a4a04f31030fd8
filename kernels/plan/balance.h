// Steps 1 and 2 of planning: how many routes each rank should compute, and which rank gives how
// many to which.
#ifndef PERIGEE_KERNELS_PLAN_BALANCE_H_
#define PERIGEE_KERNELS_PLAN_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/layout/geometry.h"

namespace perigee {

// Target load [R]: the routes shared out evenly, what is left over to the lowest ranks.
std::vector<int32_t> TargetLoads(int32_t ranks, int32_t total_routes);

// [R, R] routes that home rank h gives away to rank d. expert_counts [E]: all ranks' routes by
// expert.
//
// Greedy: the fullest rank fills the emptiest one, ties to the lowest rank, until nobody is over
// the target. Each round settles one receiver for good, so there are at most R - 1 rounds and each
// receiver has exactly one donor. A donor may give more than it has to spare and receive later.
std::vector<int32_t> BalanceTransfers(const Geometry& geometry,
                                      absl::Span<const int32_t> expert_counts);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_BALANCE_H_
