#include "client/cli/cluster/local_cluster.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/device_probe.h"
#include "client/cli/cluster/device_share.h"
#include "client/cli/cluster/program_paths.h"
#include "client/cli/cluster/run_directory.h"
#include "client/cli/cluster/supervise_command.h"
#include "client/cli/command.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

using Kind = SupervisorEvent::Kind;

constexpr absl::Duration kStopTimeout = absl::Seconds(6);
// Children of a supervisor that has gone exit within kOrphanExitTimeout.
const absl::Duration kOrphansTimeout = kOrphanExitTimeout + absl::Seconds(1);

// glibc's own wrapper cannot be called from C++.
FileDescriptor OpenProcess(pid_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool WaitReadable(int fd, absl::Duration until) {
  const absl::Duration left = std::max(until - RealClock().Monotonic(), absl::ZeroDuration());
  pollfd poll_fd = {fd, POLLIN, 0};
  return poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0;
}

absl::StatusOr<int32_t> ChooseSms(const SupervisorOptions& options,
                                  const std::string& worker_program) {
  if (options.backend != "cuda") return options.sms;
  const auto devices = ProbeDevices(worker_program);
  if (!devices.ok()) return devices.status();
  return SmsOfWorker(*devices, options.ranks, options.shared_gpu);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(SupervisorOptions options) {
  const auto programs = FindPrograms();
  if (!programs.ok()) return programs.status();
  const auto sms = ChooseSms(options, programs->worker);
  if (!sms.ok()) return sms.status();
  options.sms = *sms;
  auto events = NewPipe();
  if (!events.ok()) return events.status();
  auto life = NewPipe();
  if (!life.ok()) return life.status();

  ChildOptions child;
  child.path = OwnProgram();
  child.args = SuperviseArguments(options, events->write.get(), life->read.get());
  child.args.insert(child.args.begin(), "perigee");
  child.keep = {events->write.get(), life->read.get()};
  child.own_session = true;
  const auto pid = StartChild(child);
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<LocalCluster>(
      new LocalCluster(*pid, std::move(events->read), std::move(life->write)));
}

LocalCluster::LocalCluster(pid_t supervisor, FileDescriptor events, FileDescriptor life)
    : supervisor_(supervisor), events_(std::move(events)), life_(std::move(life)) {}

LocalCluster::~LocalCluster() { Stop(); }

absl::Status LocalCluster::WaitUntilReady(int interrupt_fd) {
  while (!ready_ && !failure_) {
    pollfd fds[] = {{event_fd(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
    poll(fds, 2, -1);  // bounded: the supervisor gives up by itself
    if (fds[1].revents != 0) return absl::CancelledError("cancelled");
    TakeEvents();
  }
  if (!failure_) return absl::OkStatus();
  return failure_->exit_status == kWrongUse ? absl::InvalidArgumentError(failure_->text)
                                            : absl::FailedPreconditionError(failure_->text);
}

std::vector<SupervisorEvent> LocalCluster::TakeEvents() {
  std::vector<SupervisorEvent> taken;
  if (events_.ended()) return taken;
  for (const std::string& line : events_.Read()) {
    if (auto event = ParseSupervisorEvent(line)) taken.push_back(*std::move(event));
  }
  for (const SupervisorEvent& event : taken) Apply(event);
  if (events_.ended() && life_.valid() && !failure_) {
    taken.push_back({.kind = Kind::kFailed,
                     .exit_status = kFailed,
                     .text = "the process that supervises the cluster was lost"});
    Apply(taken.back());
  }
  return taken;
}

void LocalCluster::Apply(const SupervisorEvent& event) {
  switch (event.kind) {
    case Kind::kDirectory:
      directory_ = event.text;
      break;
    case Kind::kCoordinator:
      coordinator_ = {event.address, event.pid, OpenProcess(event.pid)};
      break;
    case Kind::kWorker:
      workers_[event.name] = {event.address, event.pid, OpenProcess(event.pid)};
      break;
    case Kind::kReady:
      ready_ = true;
      break;
    case Kind::kLost:
      break;
    case Kind::kFailed:
      failure_ = event;
      break;
  }
}

void LocalCluster::Stop() {
  if (supervisor_ < 0) return;
  life_.Reset();
  // Its end of the events closes with the supervisor, however it ends.
  const absl::Duration until = RealClock().Monotonic() + kStopTimeout;
  while (!events_.ended() && WaitReadable(events_.fd(), until)) TakeEvents();
  if (!events_.ended()) kill(supervisor_, SIGKILL);
  int wait_status = 0;
  waitpid(supervisor_, &wait_status, 0);
  supervisor_ = -1;
  if (WIFSIGNALED(wait_status)) WaitForOrphans();
  if (!directory_.empty()) RunDirectory::Remove(directory_);
}

void LocalCluster::WaitForOrphans() {
  const absl::Duration until = RealClock().Monotonic() + kOrphansTimeout;
  const auto wait = [until](const Process& process) {
    if (process.handle.valid()) WaitReadable(process.handle.get(), until);
  };
  for (const auto& [name, worker] : workers_) wait(worker);
  wait(coordinator_);
}

}  // namespace perigee
