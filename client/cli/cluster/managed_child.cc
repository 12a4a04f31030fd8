#include "client/cli/cluster/managed_child.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/child_process.h"

namespace perigee {

ManagedChild::ManagedChild(std::string name, std::string path, std::vector<std::string> args,
                           std::string log_path)
    : name_(std::move(name)),
      path_(std::move(path)),
      args_(std::move(args)),
      log_path_(std::move(log_path)) {}

absl::Status ManagedChild::Start(int death_fd) {
  auto pipe = NewPipe();
  if (!pipe.ok()) return pipe.status();
  ChildOptions options;
  options.path = path_;
  options.args = args_;
  options.args.push_back(absl::StrCat("--ready_fd=", pipe->write.get()));
  options.args.push_back(absl::StrCat("--death_fd=", death_fd));
  options.keep = {pipe->write.get(), death_fd};
  options.log_path = log_path_;
  options.die_with_parent = true;
  const auto pid = StartChild(options);
  if (!pid.ok()) return pid.status();
  pid_ = *pid;
  ready_ = LineReader(std::move(pipe->read));
  serves_since_.reset();
  return absl::OkStatus();
}

absl::optional<std::string> ManagedChild::TakeAddress(absl::Duration now) {
  const std::vector<std::string> lines = ready_.Read();
  if (lines.empty()) return absl::nullopt;
  ready_ = LineReader();
  serves_since_ = now;
  has_served_ = true;
  return lines.front();
}

bool ManagedChild::Reap(pid_t pid) {
  if (pid_ != pid) return false;
  pid_ = -1;
  ready_ = LineReader();
  return true;
}

void ManagedChild::Signal(int number) const {
  if (running()) kill(pid_, number);
}

absl::Duration ManagedChild::Served(absl::Duration now) const {
  return serves_since_ ? now - *serves_since_ : absl::ZeroDuration();
}

}  // namespace perigee
