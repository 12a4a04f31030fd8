// reduce_gradients on the host backend. Contract: kernels/backend.h.
#ifndef PERIGEE_KERNELS_HOST_REDUCE_GRADIENTS_H_
#define PERIGEE_KERNELS_HOST_REDUCE_GRADIENTS_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/host_rank.h"

namespace perigee {

absl::Status HostReduceGradients(HostRank& rank, Sequence sequence, const PlanPtr& plan,
                                 const ExpertGradients& gradients);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_REDUCE_GRADIENTS_H_
