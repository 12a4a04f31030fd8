#include "kernels/host/host_rank.h"

namespace perigee {

absl::StatusOr<std::shared_ptr<const HostPlan>> HostPlanOf(const HostRank& rank,
                                                           const PlanPtr& plan) {
  if (plan == nullptr) return absl::InvalidArgumentError("plan is null");
  auto host_plan = std::dynamic_pointer_cast<const HostPlan>(plan);
  if (host_plan == nullptr) {
    return absl::InvalidArgumentError("plan was made by another backend, expected host");
  }
  absl::Status status = CheckPlanOwner(rank, host_plan->tag(), host_plan->rank());
  if (!status.ok()) return status;
  return host_plan;
}

}  // namespace perigee
