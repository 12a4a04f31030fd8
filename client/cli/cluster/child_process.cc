#include "client/cli/cluster/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/line_pipe.h"

namespace perigee {
namespace {

// What the child needs between fork and exec, where nothing may be allocated.
struct Prepared {
  const ChildOptions* options;
  std::vector<char*> argv;
  pid_t parent;
  int error_fd;  // closes on exec; takes errno where that fails
};

[[noreturn]] void GiveUp(const Prepared& prepared) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(prepared.error_fd, &error, sizeof(error));
  _exit(127);
}

void RedirectStreams(const Prepared& prepared) {
  const int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) GiveUp(prepared);
  const int output = prepared.options->output_fd;
  if (output >= 0) {
    if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) GiveUp(prepared);
    return;
  }
  const std::string& log_path = prepared.options->log_path;
  if (log_path.empty()) return;
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (log < 0 || dup2(log, STDERR_FILENO) < 0) GiveUp(prepared);
}

[[noreturn]] void RunInChild(const Prepared& prepared) {
  const ChildOptions& options = *prepared.options;
  if (options.own_session) setsid();
  if (options.die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // The parent may have ended before this took effect; then nobody would send the signal.
    if (getppid() != prepared.parent) _exit(127);
  }
  RedirectStreams(prepared);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int fd : options.keep) fcntl(fd, F_SETFD, 0);
  // Blocked and ignored signals would stay so beyond exec.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execv(options.path.c_str(), prepared.argv.data());
  GiveUp(prepared);
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildOptions& options) {
  auto error_pipe = NewPipe();
  if (!error_pipe.ok()) return error_pipe.status();
  Prepared prepared{&options, {}, getpid(), error_pipe->write.get()};
  for (const std::string& arg : options.args)
    prepared.argv.push_back(const_cast<char*>(arg.c_str()));
  prepared.argv.push_back(nullptr);

  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) RunInChild(prepared);
  error_pipe->write.Reset();
  int error = 0;
  ssize_t size;
  do {
    size = read(error_pipe->read.get(), &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  if (size == 0) return pid;  // closed by exec
  waitpid(pid, nullptr, 0);
  return absl::FailedPreconditionError(
      absl::StrCat("cannot execute ", options.path, ": ", std::strerror(error)));
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("exited with status ", WEXITSTATUS(wait_status));
}

}  // namespace perigee
