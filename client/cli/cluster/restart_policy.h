// When a lost worker is started again, and when that is given up. A pure decision.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_RESTART_POLICY_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_RESTART_POLICY_H_

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace perigee {

// Of one worker.
class RestartPolicy {
 public:
  // A worker that served for less than this has failed fast.
  static constexpr absl::Duration kFastFailure = absl::Seconds(1);
  // This many in a row, and it is not started again.
  static constexpr int kMaxFastFailures = 5;

  // The worker was lost after it had served for `served` (zero: it never did). How long to wait
  // before it is started again, doubling with every fast failure; none: give up.
  absl::optional<absl::Duration> OnLoss(absl::Duration served);

 private:
  int fast_failures_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_RESTART_POLICY_H_
