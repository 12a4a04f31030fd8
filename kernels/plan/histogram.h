// Step 1 of planning, the part each rank does alone: count its routes by expert, and find ids that
// are no expert.
#ifndef PERIGEE_KERNELS_PLAN_HISTOGRAM_H_
#define PERIGEE_KERNELS_PLAN_HISTOGRAM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"

namespace perigee {

// A masked route: dropped, neither moved nor counted.
inline constexpr int32_t kMaskedExpert = -1;

// A route whose id is outside [-1, E).
struct BadRoute {
  int32_t token = 0;
  int32_t k = 0;
  int64_t value = 0;  // 64 bits: routes may come from a wider type
  friend constexpr bool operator==(const BadRoute&, const BadRoute&) = default;
};

// The first bad route of the first token_count tokens, none if all are good. topk_experts [S, K];
// later tokens are not looked at. A rank of a group publishes what it finds instead of failing
// alone.
absl::optional<BadRoute> FindBadRoute(const Geometry& geometry,
                                      absl::Span<const int32_t> topk_experts, int32_t token_count);

// INVALID_ARGUMENT that names rank, token, k, the value and the range expected.
absl::Status BadRouteError(RankId rank, const BadRoute& route, int32_t experts);

// Routes by expert [E] of the first token_count tokens; masked ones do not count.
// INVALID_ARGUMENT: a bad route (BadRouteError), a token count outside [0, S], or topk_experts not
// [S, K].
absl::StatusOr<std::vector<int32_t>> CountRoutes(const Geometry& geometry, RankId rank,
                                                 absl::Span<const int32_t> topk_experts,
                                                 int32_t token_count);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_HISTOGRAM_H_
