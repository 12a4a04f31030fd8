#include "proto/local/wait_limit.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

absl::Duration MonotonicNow() {
  timespec now;
  PERIGEE_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return absl::DurationFromTimespec(now);
}

}  // namespace

Interrupt::Interrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PERIGEE_CHECK(event_.valid());
}

void Interrupt::Raise() {
  const uint64_t one = 1;
  // EAGAIN: raised 2^64 - 2 times already, so it is readable.
  ssize_t written;
  do {
    written = write(event_.get(), &one, sizeof(one));
  } while (written < 0 && errno == EINTR);
}

WaitLimit::WaitLimit(absl::Duration timeout, const Interrupt* interrupt)
    : timeout_(timeout), end_(MonotonicNow() + timeout), interrupt_(interrupt) {}

absl::Duration WaitLimit::remaining() const {
  return std::max(end_ - MonotonicNow(), absl::ZeroDuration());
}

absl::Status WaitLimit::Wait(int fd, short events) const {
  return Poll(fd, events, absl::InfiniteDuration());
}

absl::Status WaitLimit::Pause(absl::Duration pause) const { return Poll(-1, 0, pause); }

// One poll() at a time, at most a minute long, so that its int of milliseconds never overflows.
absl::Status WaitLimit::Poll(int fd, short events, absl::Duration pause) const {
  const absl::Duration pause_end = MonotonicNow() + pause;
  while (true) {
    pollfd watched[2] = {{fd, events, 0}, {interrupt_ ? interrupt_->fd() : -1, POLLIN, 0}};
    const absl::Duration left =
        std::min({remaining(), pause_end - MonotonicNow(), absl::Minutes(1)});
    const int milliseconds = static_cast<int>(
        std::max<int64_t>(0, absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    const int ready = poll(watched, 2, milliseconds);
    if (ready < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    if (ready > 0 && watched[1].revents != 0) return absl::CancelledError("interrupted");
    if (ready > 0) return absl::OkStatus();
    if (remaining() == absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("not ready within ", absl::FormatDuration(timeout_)));
    }
    if (MonotonicNow() >= pause_end) return absl::OkStatus();
  }
}

}  // namespace perigee
