// A whole group's plan, made in one process by the same functions that the ranks run each for
// itself.
#ifndef PERIGEE_KERNELS_PLAN_PLAN_H_
#define PERIGEE_KERNELS_PLAN_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"
#include "kernels/plan/duplicates.h"
#include "kernels/plan/placement.h"

namespace perigee {

struct GroupPlan {
  Placement placement;
  std::vector<int32_t> counts;              // [R, E] routes of rank r to expert e
  std::vector<int32_t> dst;                 // [R, S, K] encoded destinations (destination.h)
  std::vector<DuplicateGroups> duplicates;  // [R]

  const Geometry& geometry() const { return placement.geometry; }
  absl::Span<const int32_t> dst_of(RankId rank) const {  // [S, K]
    const size_t routes = geometry().routes();
    return absl::MakeConstSpan(dst).subspan(rank.value * routes, routes);
  }
};

// topk_experts [R, S, K], -1 = masked; token_counts [R], or empty: all S.
// INVALID_ARGUMENT: ValidateGeometry, a wrong shape, a token count outside [0, S], a bad route.
absl::StatusOr<GroupPlan> PlanGroup(const Geometry& geometry,
                                    absl::Span<const int32_t> topk_experts,
                                    absl::Span<const int32_t> token_counts);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_PLAN_H_
