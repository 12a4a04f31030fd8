// The planning rules a second time, for tests: route by route and group by group, with no thought
// of speed. It shares nothing with the planner but Geometry.
#ifndef PERIGEE_KERNELS_PLAN_REFERENCE_H_
#define PERIGEE_KERNELS_PLAN_REFERENCE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/layout/geometry.h"

namespace perigee {

using Matrix = std::vector<std::vector<int32_t>>;

struct ReferencePlan {
  Matrix transfers;                                                   // [R][R]
  Matrix alloc;                                                       // [E][R]
  Matrix experts_to_copy;                                             // [R][B]
  Matrix cu_seqlens;                                                  // [R][E + B]
  std::vector<std::vector<std::array<int32_t, 2>>> zero_fill;         // [R][E + B]
  Matrix remote_stats;                                                // [R][2]
  Matrix dst;                                                         // [R][S * K]
  std::vector<std::vector<std::array<int32_t, 3>>> duplicate_groups;  // [R][groups]
  Matrix duplicate_rows;                                              // [R][duplicates]
};

// topk_experts [R][S * K], token_counts [R]. The geometry and the ids are valid.
ReferencePlan PlanByTheRules(const Geometry& geometry, const Matrix& topk_experts,
                             const std::vector<int32_t>& token_counts);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_REFERENCE_H_
