// Where each of one rank's routes goes: what every rank computes for its own tokens once the
// histograms of all ranks are known.
#ifndef PERIGEE_KERNELS_PLAN_ROUTES_H_
#define PERIGEE_KERNELS_PLAN_ROUTES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "kernels/plan/placement.h"

namespace perigee {

// Fills dst [S, K] with the encoded destinations (destination.h) of rank `source`; every element is
// written. counts [R, E] are those that `placement` was made of, and row `source` of them was
// counted from these very topk_experts [S, K] and token_count (checked: else the process aborts). A
// caller whose routes lie where somebody else can write copies them before counting.
void AssignRoutes(const Placement& placement, RankId source, absl::Span<const int32_t> counts,
                  absl::Span<const int32_t> topk_experts, int32_t token_count,
                  absl::Span<int32_t> dst);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_ROUTES_H_
