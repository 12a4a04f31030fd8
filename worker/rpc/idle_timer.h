// Notices that a call has been silent for too long.
#ifndef PERIGEE_WORKER_RPC_IDLE_TIMER_H_
#define PERIGEE_WORKER_RPC_IDLE_TIMER_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace perigee {

// Thread-safe.
class IdleTimer {
 public:
  // on_idle: once, from a thread of gRPC, when Touch has not been called for `timeout`.
  IdleTimer(absl::Duration timeout, std::function<void()> on_idle);
  // on_idle is not running and will not be called any more. Not from on_idle itself.
  ~IdleTimer();
  IdleTimer(const IdleTimer&) = delete;
  IdleTimer& operator=(const IdleTimer&) = delete;

  void Touch();

 private:
  struct State;
  static void Arm(const std::shared_ptr<State>& state, absl::Duration wait);
  static void Expire(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_IDLE_TIMER_H_
