// Bounds the silence of a stream.
#ifndef PERIGEE_CLIENT_LIB_IDLE_WATCH_H_
#define PERIGEE_CLIENT_LIB_IDLE_WATCH_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace perigee {

// Calls on_idle once, from a thread of its own, when Alive has not been called for `timeout`.
// Thread-safe. The destructor returns after on_idle has, if it runs.
class IdleWatch {
 public:
  IdleWatch(absl::Duration timeout, std::function<void()> on_idle);
  ~IdleWatch();
  IdleWatch(const IdleWatch&) = delete;
  IdleWatch& operator=(const IdleWatch&) = delete;

  void Alive();
  bool expired() const { return expired_.load(); }

 private:
  void Run();

  const absl::Duration timeout_;
  const std::function<void()> on_idle_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t signs_of_life_ = 0;  // these two under mutex_
  bool done_ = false;
  std::atomic<bool> expired_{false};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_IDLE_WATCH_H_
