// Which geometries and token counts the planner accepts. Everything else in kernels/plan takes
// accepted ones only.
#ifndef PERIGEE_KERNELS_PLAN_VALIDATE_H_
#define PERIGEE_KERNELS_PLAN_VALIDATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"

namespace perigee {

inline constexpr int32_t kMaxRanks = 128;
inline constexpr int32_t kMaxTopk = 32;
// Far above any model: they keep the plan's own tensors small enough to allocate unseen.
inline constexpr int32_t kMaxExperts = 1 << 16;
inline constexpr int32_t kMaxSlots = 1 << 16;

// INVALID_ARGUMENT, naming the value and what was expected, unless 1 <= R <= 128, 1 <= K <= 32,
// R <= E <= 65536, E % R == 0, 0 <= B <= 65536, S >= 0, P >= 1 and R * NvS < 2^31.
absl::Status ValidateGeometry(const Geometry& geometry);

// INVALID_ARGUMENT unless 0 <= token_count <= S; names the rank.
absl::Status ValidateTokenCount(const Geometry& geometry, RankId rank, int64_t token_count);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_VALIDATE_H_
