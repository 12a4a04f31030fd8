// How ranks tell each other their histograms before a dispatch. Each rank writes into its own
// shard, before the entry barrier; its peers read there after it. Nothing is stored into a peer's
// shard before the barrier: until all have agreed on the geometry, nobody knows where it would
// land.
#ifndef PERIGEE_KERNELS_HOST_PLANNING_EXCHANGE_H_
#define PERIGEE_KERNELS_HOST_PLANNING_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_rank.h"
#include "kernels/plan/histogram.h"

namespace perigee {

// This rank's routes, private to the operation: nobody can change them between the count and the
// plan.
struct OwnRoutes {
  std::vector<int32_t> topk_experts;   // [S, K], masked past token_count
  std::vector<int32_t> counts;         // [E]; zero if there is a bad route
  absl::optional<BadRoute> bad_route;  // the first one
  int32_t token_count = 0;
};

// topk_experts [S, K]; only the first token_count tokens are read.
OwnRoutes ReadRoutes(const HostRank& rank, const int32_t* topk_experts, int32_t token_count);

// Writes them into this rank's shard, by sequence parity: why two places are enough stands in
// kernels/layout/control_page.h.
void PublishRoutes(const HostRank& rank, Sequence sequence, const OwnRoutes& routes);

// counts [R, E] of all ranks, after the entry barrier; this rank's row is its own copy. INTERNAL,
// naming the rank, if what it published cannot be a histogram: then a plan made of it could lead
// outside a shard.
absl::StatusOr<std::vector<int32_t>> CollectCounts(const HostRank& rank, Sequence sequence,
                                                   const OwnRoutes& routes);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_PLANNING_EXCHANGE_H_
