// How long one side of the command ring looks for news before it sleeps.
#ifndef PERIGEE_PROTO_LOCAL_SPIN_BUDGET_H_
#define PERIGEE_PROTO_LOCAL_SPIN_BUDGET_H_

#include "absl/time/time.h"
#include "proto/support/defaults.h"

namespace perigee {

// kCommandSpin where there are two cores (UsableCpus) for every worker of the group, one for the
// worker and one for its client; else none: who spins then takes the core from the one it waits
// for.
inline absl::Duration SpinBudget(int cores, int workers) {
  return cores >= 2 * workers ? kCommandSpin : absl::ZeroDuration();
}

// Between two looks of who spins.
inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_SPIN_BUDGET_H_
