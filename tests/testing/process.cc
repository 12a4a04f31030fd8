#include "tests/testing/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

extern char** environ;

namespace perigee {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The test's environment with entries replaced by those of the same name.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& replaced) {
  const auto name = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> merged = replaced;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool overridden = std::any_of(replaced.begin(), replaced.end(), [&](const auto& other) {
      return name(other) == name(*entry);
    });
    if (!overridden) merged.push_back(*entry);
  }
  return merged;
}

int MillisecondsUntil(absl::Time until) {
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(until - absl::Now()))) + 1;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// State in /proc/PID/stat: the letter behind the program's name, which may hold anything.
bool IsZombie(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.compare(name_end, 3, ") Z") == 0;
}

}  // namespace

Process::Process(std::vector<std::string> argv, std::vector<std::string> environment) {
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
  std::vector<std::string> merged = MergedEnvironment(environment);
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> environment_pointers = Pointers(merged);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execve(argv_pointers[0], argv_pointers.data(), environment_pointers.data());
    _exit(127);
  }
  EXPECT_GT(pid_, 0) << "fork: " << std::strerror(errno);
  close(out[1]);
  close(err[1]);
  out_.fd = out[0];
  err_.fd = err[0];
  for (const Stream* stream : {&out_, &err_}) fcntl(stream->fd, F_SETFL, O_NONBLOCK);
}

Process::~Process() {
  if (!exit_) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const Stream* stream : {&out_, &err_}) {
    if (stream->fd >= 0) close(stream->fd);
  }
}

void Process::Signal(int number) const {
  if (!exit_ && pid_ > 0) kill(pid_, number);
}

bool Process::Pump(absl::Time until) {
  pollfd fds[] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}};
  if (out_.fd < 0 && err_.fd < 0) return false;
  poll(fds, 2, MillisecondsUntil(until));
  for (Stream* stream : {&out_, &err_}) {
    char buffer[4096];
    while (stream->fd >= 0) {
      const ssize_t size = read(stream->fd, buffer, sizeof(buffer));
      if (size > 0) {
        stream->text.append(buffer, static_cast<size_t>(size));
      } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        break;
      } else {
        close(stream->fd);
        stream->fd = -1;
      }
    }
  }
  return true;
}

absl::optional<std::string> Process::AwaitLine(Stream& stream, const std::string& part,
                                               absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  while (true) {
    const std::string whole = stream.text.substr(0, stream.text.rfind('\n') + 1);
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(whole, '\n'))) {
      if (absl::StrContains(line, part)) return line;
    }
    if (stream.fd < 0 || absl::Now() > until || !Pump(until)) return absl::nullopt;
  }
}

absl::optional<std::string> Process::AwaitOut(const std::string& part, absl::Duration timeout) {
  return AwaitLine(out_, part, timeout);
}

absl::optional<std::string> Process::AwaitErr(const std::string& part, absl::Duration timeout) {
  return AwaitLine(err_, part, timeout);
}

absl::optional<int> Process::AwaitExit(absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  while (!exit_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (absl::Now() > until) {
      return absl::nullopt;
    }
    // Other processes may hold its streams for longer than it lives: ends are not waited for.
    const absl::Time soon = exit_ ? absl::Now() : absl::Now() + absl::Milliseconds(10);
    if (!Pump(soon)) poll(nullptr, 0, MillisecondsUntil(soon));
  }
  return exit_;
}

std::vector<pid_t> ProcessesWithEnvironment(const std::string& entry) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& directory : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(directory.path().filename().string(), &pid)) continue;
    const std::string path = directory.path().string();
    const std::string environment = absl::StrCat(std::string(1, '\0'), ReadFile(path + "/environ"));
    std::string wanted = absl::StrCat(std::string(1, '\0'), entry, std::string(1, '\0'));
    if (environment.find(wanted) == std::string::npos) continue;
    if (!IsZombie(ReadFile(path + "/stat"))) pids.push_back(pid);
  }
  return pids;
}

}  // namespace perigee
