#include "client/cli/cluster/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/line_pipe.h"
#include "client/cli/cluster/worker_arguments.h"
#include "client/cli/command.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

using Kind = SupervisorEvent::Kind;

// Together less than 4 s, so that a killed parent's cluster is gone within 5.
constexpr absl::Duration kWorkersStopTimeout = absl::Milliseconds(2500);
constexpr absl::Duration kCoordinatorStopTimeout = absl::Seconds(1);

std::string LogLine(const ManagedChild& child) {
  const std::string last = LastLine(child.log_path());
  return last.empty() ? "" : absl::StrCat(": ", last);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, ProgramPaths programs, FileDescriptor events,
                       FileDescriptor parent, const Clock& clock)
    : options_(std::move(options)),
      programs_(std::move(programs)),
      events_(std::move(events)),
      parent_(std::move(parent)),
      clock_(clock) {}

int Supervisor::Run() {
  absl::Status status = Prepare();
  if (status.ok()) status = StartCoordinator();
  if (!status.ok()) Fail(kFailed, std::string(status.message()));
  while (!stopping_) Step(NextTimer());
  StopAll();
  if (directory_) RunDirectory::Remove(directory_->temporary());
  return exit_status_;
}

absl::Status Supervisor::Prepare() {
  signal(SIGPIPE, SIG_IGN);  // a parent that has gone is seen on its pipe
  fcntl(events_.get(), F_SETFL, O_NONBLOCK);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_ = FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("signalfd: ", std::strerror(errno)));
  }
  auto death = NewPipe();
  if (!death.ok()) return death.status();
  death_read_ = std::move(death->read);
  death_write_ = std::move(death->write);

  auto directory = RunDirectory::Create(options_.dir);
  if (!directory.ok()) return directory.status();
  directory_ = *std::move(directory);
  Emit({.kind = Kind::kDirectory, .text = directory_->temporary()});
  return absl::OkStatus();
}

absl::Status Supervisor::StartCoordinator() {
  start_deadline_ = clock_.Monotonic() + kFormingTimeout;
  coordinator_ = std::make_unique<ManagedChild>(
      "coordinator", programs_.coordinator,
      std::vector<std::string>{"perigee-coordinator", absl::StrCat("--address=", options_.address),
                               absl::StrCat("--data_dir=", directory_->data_dir())},
      directory_->LogPath("coordinator"));
  return coordinator_->Start(death_read_.get());
}

void Supervisor::Step(absl::Duration until) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}, {parent_.get(), POLLIN, 0}};
  const auto add = [&fds](const ManagedChild& child) {
    if (child.ready_fd() >= 0) fds.push_back({child.ready_fd(), POLLIN, 0});
  };
  if (coordinator_ != nullptr) add(*coordinator_);
  for (const Worker& worker : workers_) add(worker.child);
  const absl::Duration wait = std::max(until - clock_.Monotonic(), absl::ZeroDuration());
  // Rounded up: a timer is never looked at too early and again at once.
  const int timeout_ms =
      wait == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
  poll(fds.data(), fds.size(), timeout_ms);
  if (fds[1].revents != 0) stopping_ = true;
  // Addresses first: a child may have served and ended since the last look.
  TakeAddresses();
  TakeSignals();
  if (!stopping_) RunTimers();
}

absl::Duration Supervisor::NextTimer() const {
  absl::Duration next = all_served_ ? absl::InfiniteDuration() : start_deadline_;
  for (const Worker& worker : workers_) {
    if (worker.restart_at) next = std::min(next, *worker.restart_at);
  }
  return next;
}

void Supervisor::RunTimers() {
  const absl::Duration now = clock_.Monotonic();
  for (Worker& worker : workers_) {
    if (!worker.restart_at || *worker.restart_at > now) continue;
    worker.restart_at.reset();
    StartWorker(worker);
  }
  if (all_served_ || now < start_deadline_) return;
  std::string waiting = workers_.empty() ? "the coordinator" : "";
  for (const Worker& worker : workers_) {
    if (!worker.child.has_served()) {
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", worker.child.name());
    }
  }
  Fail(kFailed, absl::StrCat("not ready within ", absl::FormatDuration(kFormingTimeout),
                             "; still waiting for ", waiting));
}

void Supervisor::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) stopping_ = true;
  }
  Reap();
}

void Supervisor::TakeAddresses() {
  const absl::Duration now = clock_.Monotonic();
  if (coordinator_ == nullptr) return;
  if (const auto address = coordinator_->TakeAddress(now)) {
    Emit({.kind = Kind::kCoordinator, .address = *address, .pid = coordinator_->pid()});
    StartWorkers(*address);
  }
  for (Worker& worker : workers_) {
    const auto address = worker.child.TakeAddress(now);
    if (!address) continue;
    Emit({.kind = Kind::kWorker,
          .name = worker.child.name(),
          .address = *address,
          .pid = worker.child.pid()});
  }
  if (all_served_ || workers_.empty()) return;
  all_served_ = std::all_of(workers_.begin(), workers_.end(),
                            [](const Worker& worker) { return worker.child.has_served(); });
  if (all_served_) Emit({.kind = Kind::kReady});
}

void Supervisor::StartWorkers(const std::string& coordinator_address) {
  for (int32_t rank = 0; rank < options_.ranks; ++rank) {
    const std::string name = WorkerName(rank);
    workers_.push_back({ManagedChild(name, programs_.worker,
                                     WorkerArguments(options_, rank, coordinator_address,
                                                     directory_->socket_dir()),
                                     directory_->LogPath(name)),
                        RestartPolicy(), absl::nullopt});
  }
  for (Worker& worker : workers_) StartWorker(worker);
}

void Supervisor::StartWorker(Worker& worker) {
  const absl::Status status = worker.child.Start(death_read_.get());
  if (!status.ok()) Fail(kFailed, std::string(status.message()));
}

void Supervisor::Reap() {
  int wait_status = 0;
  for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    if (coordinator_ != nullptr && coordinator_->Reap(pid)) OnCoordinatorExit(wait_status);
    for (Worker& worker : workers_) {
      if (worker.child.Reap(pid)) OnWorkerExit(worker, wait_status);
    }
  }
}

void Supervisor::OnCoordinatorExit(int wait_status) {
  if (stopping_) return;
  const bool served = coordinator_->has_served();
  const int status = WIFEXITED(wait_status) && !served ? WEXITSTATUS(wait_status) : kFailed;
  Fail(status == kWrongUse ? kWrongUse : kFailed,
       absl::StrCat("the coordinator ", served ? "was lost: it " : "did not start: it ",
                    DescribeExit(wait_status), LogLine(*coordinator_)));
}

void Supervisor::OnWorkerExit(Worker& worker, int wait_status) {
  const absl::Duration now = clock_.Monotonic();
  directory_->RemoveSockets(worker.child.name());
  if (stopping_) return;
  const std::string name = worker.child.name();
  const std::string how =
      absl::StrCat(DescribeExit(wait_status), WIFEXITED(wait_status) ? LogLine(worker.child) : "");
  if (!worker.child.has_served() && WIFEXITED(wait_status)) {
    return Fail(WEXITSTATUS(wait_status) == kWrongUse ? kWrongUse : kFailed,
                absl::StrCat("worker ", name, " did not start: it ", how));
  }
  if (!options_.restart) {
    return Emit({.kind = Kind::kLost, .name = name, .text = how});
  }
  const auto delay = worker.policy.OnLoss(worker.child.Served(now));
  if (!delay) {
    return Fail(kFailed,
                absl::StrCat("worker ", name, " ended ", RestartPolicy::kMaxFastFailures,
                             " times in a row right after its start; the last time it ", how));
  }
  worker.restart_at = now + *delay;
  Emit({.kind = Kind::kLost, .name = name, .text = absl::StrCat(how, "; starting it again")});
}

void Supervisor::StopAll() {
  for (Worker& worker : workers_) worker.child.Signal(SIGTERM);
  WaitForExits(false, clock_.Monotonic() + kWorkersStopTimeout);
  if (coordinator_ != nullptr) coordinator_->Signal(SIGTERM);
  if (WaitForExits(true, clock_.Monotonic() + kCoordinatorStopTimeout)) return;
  for (Worker& worker : workers_) worker.child.Signal(SIGKILL);
  if (coordinator_ != nullptr) coordinator_->Signal(SIGKILL);
  WaitForExits(true, clock_.Monotonic() + kCoordinatorStopTimeout);
}

bool Supervisor::AnyRuns(bool coordinator_too) const {
  if (coordinator_too && coordinator_ != nullptr && coordinator_->running()) return true;
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.child.running(); });
}

bool Supervisor::WaitForExits(bool coordinator_too, absl::Duration until) {
  stopping_ = true;
  while (true) {
    TakeSignals();
    if (!AnyRuns(coordinator_too)) return true;
    const absl::Duration left = until - clock_.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    pollfd fd = {signals_.get(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
}

void Supervisor::Emit(const SupervisorEvent& event) {
  const std::string line = FormatSupervisorEvent(event) + "\n";
  // A parent that does not read loses events, never its cluster.
  [[maybe_unused]] const ssize_t written = write(events_.get(), line.data(), line.size());
}

void Supervisor::Fail(int exit_status, const std::string& text) {
  if (stopping_) return;
  stopping_ = true;
  exit_status_ = exit_status;
  Emit({.kind = Kind::kFailed, .exit_status = exit_status, .text = text});
}

}  // namespace perigee
