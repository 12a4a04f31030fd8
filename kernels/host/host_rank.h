// What the operations of the host backend share: one rank's shape and its means to wait and work.
#ifndef PERIGEE_KERNELS_HOST_HOST_RANK_H_
#define PERIGEE_KERNELS_HOST_HOST_RANK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/host/collective.h"
#include "kernels/host/host_plan.h"
#include "kernels/host/thread_pool.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/rank/rank_shape.h"

namespace perigee {

struct HostRank : RankShape {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Collective> collective;
};

// The plan behind a handle. INVALID_ARGUMENT, naming what the handle carries and what is wanted,
// unless this rank's data path of this buffer and generation made it.
absl::StatusOr<std::shared_ptr<const HostPlan>> HostPlanOf(const HostRank& rank,
                                                           const PlanPtr& plan);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_RANK_H_
