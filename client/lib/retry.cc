#include "client/lib/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/lib/group_error.h"
#include "proto/support/defaults.h"
#include "proto/support/random.h"

namespace perigee {
namespace {

constexpr int kAttempts = 4;

double RandomUnit() { return static_cast<double>(RandomUint64() >> 11) * 0x1p-53; }

// False where the stop request came first.
bool SleepFor(absl::Duration duration, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  return !stopped.wait_for(lock, stop, absl::ToChronoNanoseconds(duration),
                           [&stop] { return stop.stop_requested(); });
}

}  // namespace

absl::optional<absl::Duration> RetryDelay(const absl::Status& status, Repeat repeat, int attempts,
                                          double random) {
  if (repeat == Repeat::kNever || attempts >= kAttempts) return absl::nullopt;
  // A GroupError shows that the call arrived: it is a rank that is unavailable, not the server.
  if (!absl::IsUnavailable(status) || GroupErrorOf(status)) return absl::nullopt;
  const absl::Duration delay =
      std::min(kReconnectBackoffMin * (1 << (attempts - 1)), kReconnectBackoffMax);
  return delay * (1.0 + kReconnectJitter * (2.0 * random - 1.0));
}

absl::Status CallWithRetry(Repeat repeat, std::stop_token stop,
                           absl::FunctionRef<absl::Status()> send) {
  for (int attempts = 1;; ++attempts) {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    absl::Status status = send();
    const auto delay = RetryDelay(status, repeat, attempts, RandomUnit());
    if (!delay) return status;
    if (!SleepFor(*delay, stop)) return absl::CancelledError("cancelled");
  }
}

}  // namespace perigee
