// combine on the host backend. Contract: kernels/backend.h.
//
// 1. Rows and weights that are not the shard itself are copied into it; each duplicate is summed
//    into its primary row there.
// 2. Entry barrier: all agree; every rank's primary rows are ready.
// 3. Each owner sums the primary rows of its tokens, read from any rank, and gathers weights.
// 4. Exit barrier: nobody reads a shard any more.
//
// Step 1 writes this rank's shard before the entry barrier. No peer can touch the shard's rows or
// weights then: it did so last before the exit barrier of the previous operation that went that
// far, which this rank has passed; and an operation that ended at its entry touched control words
// and planning words only. So no further barrier is needed before step 1.
#ifndef PERIGEE_KERNELS_HOST_COMBINE_H_
#define PERIGEE_KERNELS_HOST_COMBINE_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_rank.h"

namespace perigee {

absl::Status HostCombine(HostRank& rank, Sequence sequence, const PlanPtr& plan,
                         const CombineInput& input, const CombineOutput& output);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_COMBINE_H_
