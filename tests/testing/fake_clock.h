// A clock that moves only when the test says so.
#ifndef PERIGEE_TESTS_TESTING_FAKE_CLOCK_H_
#define PERIGEE_TESTS_TESTING_FAKE_CLOCK_H_

#include <mutex>

#include "absl/time/time.h"
#include "proto/support/clock.h"

namespace perigee {

// Thread-safe.
class FakeClock final : public Clock {
 public:
  absl::Duration Monotonic() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  absl::Time Wall() const override { return absl::UnixEpoch() + Monotonic(); }
  void Advance(absl::Duration by) {
    std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  mutable std::mutex mutex_;
  absl::Duration now_ = absl::Hours(1);
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_TESTING_FAKE_CLOCK_H_
