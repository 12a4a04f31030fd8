#include "kernels/host/monotonic_clock.h"

#include <chrono>

namespace perigee {

MonotonicClock SteadyClock() {
  return [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
}

}  // namespace perigee
