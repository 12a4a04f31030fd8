// The thread that turns deadlines into calls.
#ifndef PERIGEE_SERVER_ALARM_H_
#define PERIGEE_SERVER_ALARM_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "proto/support/clock.h"

namespace perigee {

// Thread-safe.
class Alarm {
 public:
  // `ring` is called from the alarm's thread whenever the deadline has come; the alarm is then
  // unset. `clock` outlives the alarm.
  Alarm(const Clock& clock, std::function<void()> ring);
  ~Alarm();  // Stop
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Rings at `deadline` (of clock.Monotonic()) at the latest. Does not block.
  void SetAtLatest(absl::Duration deadline);
  // Looks at the clock again: it did not move by itself.
  void Poke();
  // Waits for a ring under way; none follows. Not to be called from `ring`. Idempotent.
  void Stop();

 private:
  void Run();

  const Clock& clock_;
  const std::function<void()> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Duration deadline_ = absl::InfiniteDuration();
  bool poked_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_ALARM_H_
