// dispatch, with and without a saved plan, on the host backend. Contracts: kernels/backend.h.
//
// 1. Routes are copied, checked and counted; the histogram is published.
// 2. Entry barrier: all agree; all histograms are there; nobody touches a shard's rows any more.
// 3. Every rank makes the same placement and its own routes' destinations.
// 4. Each source writes primary rows, all weights and duplicate links where they belong, on any
//    rank; each owner zeroes its padding.
// 5. Exit barrier: every row is where it belongs.
// 6. Each owner reads the links and copies primary rows to their duplicates, in its own shard.
#ifndef PERIGEE_KERNELS_HOST_DISPATCH_H_
#define PERIGEE_KERNELS_HOST_DISPATCH_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_plan.h"
#include "kernels/host/host_rank.h"

namespace perigee {

absl::StatusOr<std::shared_ptr<const HostPlan>> HostDispatch(HostRank& rank, Sequence sequence,
                                                             const DispatchInput& input,
                                                             const DispatchOutput& output);

absl::Status HostDispatchWithPlan(HostRank& rank, Sequence sequence, const PlanPtr& plan,
                                  const DispatchInput& input, const DispatchOutput& output);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_DISPATCH_H_
