#include "worker/rpc/idle_timer.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "grpcpp/alarm.h"
#include "proto/support/clock.h"

namespace perigee {

// Shared with the alarm's callback, which may come after the timer has gone. Every wait has an
// alarm of its own: setting one again from its callback would destroy that callback as it runs.
struct IdleTimer::State {
  absl::Duration timeout;
  std::mutex mutex;
  std::function<void()> on_idle;       // guarded by mutex; empty: the timer has gone, or fired
  absl::Duration last_touch;           // guarded by mutex
  std::unique_ptr<grpc::Alarm> alarm;  // guarded by mutex
};

IdleTimer::IdleTimer(absl::Duration timeout, std::function<void()> on_idle)
    : state_(std::make_shared<State>()) {
  state_->timeout = timeout;
  state_->on_idle = std::move(on_idle);
  state_->last_touch = RealClock().Monotonic();
  std::lock_guard<std::mutex> lock(state_->mutex);
  Arm(state_, timeout);
}

IdleTimer::~IdleTimer() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->on_idle = nullptr;
  state_->alarm.reset();  // cancels; its callback lets go of the state
}

void IdleTimer::Touch() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->last_touch = RealClock().Monotonic();
}

void IdleTimer::Arm(const std::shared_ptr<State>& state, absl::Duration wait) {
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(wait) +
                        std::chrono::milliseconds(1);
  state->alarm = std::make_unique<grpc::Alarm>();
  state->alarm->Set(deadline, [state](bool) { Expire(state); });
}

void IdleTimer::Expire(const std::shared_ptr<State>& state) {
  std::lock_guard<std::mutex> lock(state->mutex);
  if (!state->on_idle) return;
  const absl::Duration idle = RealClock().Monotonic() - state->last_touch;
  if (idle < state->timeout) {
    Arm(state, state->timeout - idle);
    return;
  }
  const std::function<void()> on_idle = std::exchange(state->on_idle, nullptr);
  on_idle();
}

}  // namespace perigee
