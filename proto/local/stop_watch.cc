#include "proto/local/stop_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "kernels/common/check.h"
#include "proto/support/defaults.h"
#include "proto/support/event_log.h"

namespace perigee {
namespace {

// From the wish to stop to the forced end: a little less than the supervisor is promised.
const absl::Duration kCleanUpTime = kOrphanExitTimeout - absl::Milliseconds(500);

// A descriptor at its end is readable and gives nothing.
bool AtEnd(int fd) {
  char bytes[64];
  const ssize_t got = read(fd, bytes, sizeof(bytes));
  return got == 0;
}

}  // namespace

StopWatch::StopWatch(int death_fd) : death_(death_fd) {
  const pid_t parent = getppid();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  PERIGEE_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
  signals_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  PERIGEE_CHECK(signals_.valid());
  if (death_.valid()) {
    PERIGEE_CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
    // It ended before the signal was asked for.
    if (getppid() != parent) Stop(1);
  }
  thread_ = std::thread([this] { Run(); });
}

StopWatch::~StopWatch() {
  finished_.Raise();
  thread_.join();
}

void StopWatch::Run() {
  pollfd watched[4] = {{signals_.get(), POLLIN, 0},
                       {death_.get(), POLLIN, 0},
                       {finished_.fd(), POLLIN, 0},
                       {stop_.fd(), POLLIN, 0}};
  while (true) {
    if (poll(watched, 4, -1) < 0) continue;
    if (watched[2].revents != 0) return;
    if (watched[0].revents != 0) Stop(0);
    if (watched[1].revents != 0 && AtEnd(death_.get())) Stop(1);
    if (watched[3].revents != 0) break;
  }
  const WaitLimit limit(kCleanUpTime, &finished_);
  if (absl::IsDeadlineExceeded(limit.Pause(absl::InfiniteDuration()))) ForceExit();
}

void StopWatch::Stop(int exit_status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_) exit_status_ = exit_status;
    stopped_ = true;
  }
  stop_.Raise();
}

void StopWatch::ForceExit() {
  LogEvent(LogLevel::kError, "forced_exit", {{"after", absl::FormatDuration(kCleanUpTime)}});
  std::lock_guard<std::mutex> lock(mutex_);
  if (!leftover_.empty()) unlink(leftover_.c_str());
  _exit(1);
}

void StopWatch::Await() const {
  const WaitLimit forever(absl::InfiniteDuration());
  while (!forever.Wait(stop_.fd(), POLLIN).ok()) {
  }
}

void StopWatch::Leave() { Stop(1); }

int StopWatch::exit_status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return exit_status_;
}

void StopWatch::set_leftover(const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  leftover_ = path;
}

}  // namespace perigee
