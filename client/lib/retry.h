// The one decision whether a failed call is sent again, and the loop that acts on it.
#ifndef PERIGEE_CLIENT_LIB_RETRY_H_
#define PERIGEE_CLIENT_LIB_RETRY_H_

#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace perigee {

// kNever: the call may have taken effect and nothing would tell a second one from the first.
// kSafe: it reads, is idempotent, or carries a request_id.
enum class Repeat { kNever, kSafe };

// How long to wait before the call is sent again; none: `status` is the outcome. Only a server that
// was not reached is tried again, at most 4 times in all, after kReconnectBackoffMin doubled each
// time. attempts: how often it was sent. random in [0, 1): spreads clients that failed together by
// kReconnectJitter.
absl::optional<absl::Duration> RetryDelay(const absl::Status& status, Repeat repeat, int attempts,
                                          double random);

// Sends until RetryDelay gives up. Blocks; a stop request ends it with CANCELLED before the next
// attempt.
absl::Status CallWithRetry(Repeat repeat, std::stop_token stop,
                           absl::FunctionRef<absl::Status()> send);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_RETRY_H_
