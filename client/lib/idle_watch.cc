#include "client/lib/idle_watch.h"

#include <utility>

namespace perigee {

IdleWatch::IdleWatch(absl::Duration timeout, std::function<void()> on_idle)
    : timeout_(timeout), on_idle_(std::move(on_idle)), thread_([this] { Run(); }) {}

IdleWatch::~IdleWatch() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void IdleWatch::Alive() {
  {
    std::lock_guard lock(mutex_);
    ++signs_of_life_;
  }
  changed_.notify_all();
}

void IdleWatch::Run() {
  std::unique_lock lock(mutex_);
  uint64_t seen = signs_of_life_;
  while (changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout_),
                           [&] { return done_ || signs_of_life_ != seen; })) {
    if (done_) return;
    seen = signs_of_life_;
  }
  expired_.store(true);
  lock.unlock();
  on_idle_();
}

}  // namespace perigee
