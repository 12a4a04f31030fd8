// Time as everything but main() sees it: passed in, so that a test can own it.
#ifndef PERIGEE_PROTO_SUPPORT_CLOCK_H_
#define PERIGEE_PROTO_SUPPORT_CLOCK_H_

#include "absl/time/time.h"

namespace perigee {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Time since a fixed moment before the start; never goes back and does not jump with the wall
  // clock. All deadlines and leases count on it.
  virtual absl::Duration Monotonic() const = 0;
  // For people and records only.
  virtual absl::Time Wall() const = 0;
};

// The machine's clocks.
const Clock& RealClock();

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_CLOCK_H_
