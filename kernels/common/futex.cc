#include "kernels/common/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace perigee {

void FutexWait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative{static_cast<time_t>(seconds.count()),
                          static_cast<long>((timeout - seconds).count())};
  // Every outcome (woken, EAGAIN, EINTR, ETIMEDOUT) means the same to the caller: look again.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWakeAll(uint32_t& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace perigee
