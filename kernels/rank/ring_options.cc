#include "kernels/rank/ring_options.h"

#include "absl/strings/str_cat.h"
#include "kernels/layout/rings.h"

namespace perigee {

absl::Status CheckRingOptions(const DataPathOptions& options) {
  const RingOptions& rings = options.rings;
  if (!IsRingCount(rings.dispatch_slots) || !IsRingCount(rings.expert_slots)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dispatch-output slots is ", rings.dispatch_slots, ", expert-output slots ",
                     rings.expert_slots, ", expected 0 to ", kMaxRingSlots, " of each"));
  }
  if (rings.dispatch_slots > 0 && rings.rows == RowsAfterwards::kKept) {
    return absl::InvalidArgumentError(
        "dispatch-output slots are used again while the consumer of their rows keeps these for "
        "backward, expected one that copies them, or no such slots");
  }
  if (options.transport == Transport::kNvlink) return absl::OkStatus();
  if (rings.dispatch_slots == 0 && rings.expert_slots == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("transport nccl has no rings of slots, expected none");
}

}  // namespace perigee
