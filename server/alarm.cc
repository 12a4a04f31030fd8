#include "server/alarm.h"

#include <algorithm>
#include <utility>

namespace perigee {
namespace {

// The standard library's clocks overflow long before absl's durations do.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

Alarm::Alarm(const Clock& clock, std::function<void()> ring)
    : clock_(clock), ring_(std::move(ring)), thread_([this] { Run(); }) {}

Alarm::~Alarm() { Stop(); }

void Alarm::SetAtLatest(absl::Duration deadline) {
  std::lock_guard lock(mutex_);
  if (deadline >= deadline_) return;
  deadline_ = deadline;
  poked_ = true;
  changed_.notify_all();
}

void Alarm::Poke() {
  std::lock_guard lock(mutex_);
  poked_ = true;
  changed_.notify_all();
}

void Alarm::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Alarm::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const absl::Duration wait = deadline_ - clock_.Monotonic();
    if (wait > absl::ZeroDuration()) {
      poked_ = false;
      changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(wait, kLongestWait)),
                        [this] { return stopped_ || poked_; });
      continue;
    }
    deadline_ = absl::InfiniteDuration();
    lock.unlock();
    ring_();
    lock.lock();
  }
}

}  // namespace perigee
