// What can be set on a host backend, and on every data path made from it.
#ifndef PERIGEE_KERNELS_HOST_HOST_BACKEND_OPTIONS_H_
#define PERIGEE_KERNELS_HOST_HOST_BACKEND_OPTIONS_H_

#include "absl/time/time.h"
#include "kernels/host/monotonic_clock.h"

namespace perigee {

struct HostBackendOptions {
  // Dates the deadlines.
  MonotonicClock clock = SteadyClock();
  // A waiting rank looks at its clock at least this often. Wakes do not depend on it; it bounds how
  // late a deadline is seen.
  absl::Duration wait_slice = absl::Milliseconds(100);
  // How long a rank that waits polls before it sleeps. Zero unless every rank has a core to spare:
  // polling then saves the wake-up, but takes the core from a rank that has work to do.
  absl::Duration spin = absl::ZeroDuration();
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_BACKEND_OPTIONS_H_
