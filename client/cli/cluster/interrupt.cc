#include "client/cli/cluster/interrupt.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<FileDescriptor> TakeInterrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  FileDescriptor fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.valid()) return fd;
  return absl::ResourceExhaustedError(absl::StrCat("signalfd: ", std::strerror(errno)));
}

bool TookInterrupt(int fd) {
  signalfd_siginfo info;
  return read(fd, &info, sizeof(info)) == sizeof(info);
}

}  // namespace perigee
