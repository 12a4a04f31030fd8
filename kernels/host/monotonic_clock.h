// The time that deadlines are measured in, injected so that a test can advance it.
#ifndef PERIGEE_KERNELS_HOST_MONOTONIC_CLOCK_H_
#define PERIGEE_KERNELS_HOST_MONOTONIC_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace perigee {

// Time since an arbitrary origin; never goes back. Called from any thread.
using MonotonicClock = std::function<absl::Duration()>;

// CLOCK_MONOTONIC.
MonotonicClock SteadyClock();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_MONOTONIC_CLOCK_H_
