// The steps of a dispatch on the host backend, which direct publication takes one by one.
#ifndef PERIGEE_KERNELS_HOST_DISPATCH_STEPS_H_
#define PERIGEE_KERNELS_HOST_DISPATCH_STEPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_plan.h"
#include "kernels/host/host_rank.h"
#include "kernels/plan/placement.h"

namespace perigee {

// Of a plan, all but its duplicates, which are known when every rank has sent its links.
struct Planned {
  Placement placement;
  std::vector<int32_t> dst;  // [S, K]
};

// Of the collective operation begun: the ranks tell each other their histograms, pass its entry
// barrier, and each plans. An error as the operation returns it.
absl::StatusOr<Planned> PlanTogether(HostRank& rank, Sequence sequence, Operation operation,
                                     const int32_t* topk_experts, int32_t token_count);

// To any rank: rows of primaries, and weights of all routes; neither where it is null.
void SendTokens(const HostRank& rank, absl::Span<const int32_t> dst, const DispatchInput& input);

// For every route of the first token_count tokens: whose duplicate its row is, for the owner to
// read.
void SendLinks(const HostRank& rank, absl::Span<const int32_t> dst, int32_t token_count);

// When every rank has sent all: expands this rank's duplicates, copies out what is wanted, and
// completes the plan.
absl::StatusOr<std::shared_ptr<const HostPlan>> Deliver(HostRank& rank, Sequence made_at,
                                                        int32_t token_count, const Planned& planned,
                                                        const DispatchOutput& output);

// After the rows are complete: copies for a caller that does not read the shard in place.
void CopyOut(const HostRank& rank, int32_t used_rows, const DispatchOutput& output);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_DISPATCH_STEPS_H_
