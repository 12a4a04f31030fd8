#include "worker/session/plan_tensor.h"

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<PlanTensor> SelectPlanTensor(const PlanTensors& plan, const std::string& name,
                                            const Geometry& geometry) {
  const int64_t ranks = geometry.ranks;
  const int64_t groups = geometry.groups();
  if (name == "dst") return PlanTensor{{geometry.tokens, geometry.topk}, plan.dst};
  if (name == "cu_seqlens") return PlanTensor{{groups}, plan.cu_seqlens};
  if (name == "zero_fill_ranges") return PlanTensor{{groups, 2}, plan.zero_fill_ranges};
  if (name == "experts_to_copy") return PlanTensor{{ranks, geometry.slots}, plan.experts_to_copy};
  if (name == "load") return PlanTensor{{ranks}, plan.load};
  if (name == "home_load") return PlanTensor{{ranks}, plan.home_load};
  if (name == "remote_stats") return PlanTensor{{2}, plan.remote_stats};
  if (name == "duplicate_groups") {
    const int64_t count = static_cast<int64_t>(plan.duplicate_groups.size()) / 3;
    return PlanTensor{{count, 3}, plan.duplicate_groups};
  }
  if (name == "duplicate_rows") {
    return PlanTensor{{static_cast<int64_t>(plan.duplicate_rows.size())}, plan.duplicate_rows};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a plan has no tensor '", name.substr(0, 64),
      "', expected dst, cu_seqlens, zero_fill_ranges, experts_to_copy, load, home_load, "
      "remote_stats, duplicate_groups or duplicate_rows"));
}

}  // namespace perigee
