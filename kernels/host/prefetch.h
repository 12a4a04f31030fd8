// prefetch_weights on the host backend. Contract: kernels/backend.h.
#ifndef PERIGEE_KERNELS_HOST_PREFETCH_H_
#define PERIGEE_KERNELS_HOST_PREFETCH_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_rank.h"

namespace perigee {

// A home that holds other weights than asked for is found after the entry barrier, by the ranks
// that need it alone: they pass the exit barrier like the others before they report kStaleWeights,
// so nobody waits for them. Their slots of that home are left untagged.
absl::Status HostPrefetchWeights(HostRank& rank, Sequence sequence, const PlanPtr& plan,
                                 const ExpertWeights& weights);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_PREFETCH_H_
