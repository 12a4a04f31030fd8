// Step 3 of planning: which experts' routes make up what each home rank gives away.
#ifndef PERIGEE_KERNELS_PLAN_SPLIT_H_
#define PERIGEE_KERNELS_PLAN_SPLIT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/layout/geometry.h"

namespace perigee {

// [E, R] routes of expert e that rank d computes. expert_counts [E], transfers [R, R]
// (balance.h).
//
// Greedy per donor: the largest remaining transfer takes as much as it can of the largest remaining
// expert (ties: lowest rank, lowest id), which cuts few experts into pieces.
std::vector<int32_t> SplitByExpert(const Geometry& geometry,
                                   absl::Span<const int32_t> expert_counts,
                                   absl::Span<const int32_t> transfers);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_SPLIT_H_
