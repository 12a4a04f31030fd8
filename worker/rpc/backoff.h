// How long to wait before the next attempt: doubling from the least to the most, each time a little
// off, so that many workers do not come back in lockstep.
#ifndef PERIGEE_WORKER_RPC_BACKOFF_H_
#define PERIGEE_WORKER_RPC_BACKOFF_H_

#include <algorithm>
#include <functional>

#include "absl/time/time.h"
#include "proto/support/defaults.h"
#include "proto/support/random.h"

namespace perigee {

class Backoff {
 public:
  // random: a uniform 64-bit number per call.
  explicit Backoff(std::function<uint64_t()> random = RandomUint64) : random_(std::move(random)) {}

  absl::Duration Next() {
    const double unit = static_cast<double>(random_()) / 18446744073709551616.0;  // [0, 1)
    const absl::Duration wait = next_ * (1 + kReconnectJitter * (2 * unit - 1));
    next_ = std::min(2 * next_, kReconnectBackoffMax);
    return wait;
  }
  void Reset() { next_ = kReconnectBackoffMin; }

 private:
  const std::function<uint64_t()> random_;
  absl::Duration next_ = kReconnectBackoffMin;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_BACKOFF_H_
