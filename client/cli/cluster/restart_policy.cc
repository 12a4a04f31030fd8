#include "client/cli/cluster/restart_policy.h"

#include <algorithm>

#include "proto/support/defaults.h"

namespace perigee {

absl::optional<absl::Duration> RestartPolicy::OnLoss(absl::Duration served) {
  fast_failures_ = served < kFastFailure ? fast_failures_ + 1 : 0;
  if (fast_failures_ >= kMaxFastFailures) return absl::nullopt;
  return std::min(kReconnectBackoffMin * (1 << fast_failures_), kReconnectBackoffMax);
}

}  // namespace perigee
