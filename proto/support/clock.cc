#include "proto/support/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace perigee {
namespace {

class MachineClock final : public Clock {
 public:
  absl::Duration Monotonic() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::DurationFromTimespec(now);
  }
  absl::Time Wall() const override { return absl::Now(); }
};

}  // namespace

const Clock& RealClock() {
  static const MachineClock clock;
  return clock;
}

}  // namespace perigee
