// Direct publication on the host backend. Contracts: kernels/direct_publication.h.
//
// A dispatch (dispatch.h) is taken apart: its steps 1 to 3 are PrepareDispatch; of step 4 the rows
// are the producer's, the rest is PreparePublication; the entry barrier of Publish is step 5, and
// step 6 follows it. As many barriers as a dispatch has.
#ifndef PERIGEE_KERNELS_HOST_PUBLISH_H_
#define PERIGEE_KERNELS_HOST_PUBLISH_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/direct_publication.h"
#include "kernels/host/host_rank.h"
#include "kernels/rank/publication_checks.h"

namespace perigee {

// Of a target of this backend; INVALID_ARGUMENT: it is none.
absl::StatusOr<TargetFacts> HostTargetFacts(const TargetPtr& target);

absl::StatusOr<TargetPtr> HostPrepareDispatch(HostRank& rank, Sequence sequence,
                                              const TargetInput& input);
absl::Status HostPreparePublication(HostRank& rank, const TargetPtr& target,
                                    const float* route_weights);
absl::Status HostStoreRows(HostRank& rank, const TargetPtr& target, const BFloat16* hidden);
absl::StatusOr<PlanPtr> HostPublish(HostRank& rank, Sequence sequence, const TargetPtr& target,
                                    const DispatchOutput& output);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_PUBLISH_H_
