#include "client/cli/cluster/device_probe.h"

#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/line_pipe.h"
#include "client/cli/command.h"
#include "proto/support/clock.h"

namespace perigee {
namespace {

// All lines until the writer has gone; false: the time was up before.
bool ReadLines(LineReader& reader, absl::Duration timeout, std::vector<std::string>& lines) {
  const Clock& clock = RealClock();
  const absl::Duration until = clock.Monotonic() + timeout;
  while (true) {
    for (std::string& line : reader.Read()) lines.push_back(std::move(line));
    if (reader.ended()) return true;
    const absl::Duration left = until - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    pollfd fd = {reader.fd(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
}

}  // namespace

absl::StatusOr<std::vector<ListedDevice>> ProbeDevices(const std::string& worker_program,
                                                       absl::Duration timeout) {
  auto output = NewPipe();
  if (!output.ok()) return output.status();
  ChildOptions options;
  options.path = worker_program;
  options.args = {"perigee-worker", "--list_devices=true"};
  options.output_fd = output->write.get();
  options.die_with_parent = true;
  const auto pid = StartChild(options);
  if (!pid.ok()) return pid.status();
  output->write.Reset();
  LineReader reader(std::move(output->read));
  std::vector<std::string> lines;
  const bool in_time = ReadLines(reader, timeout, lines);
  if (!in_time) kill(*pid, SIGKILL);
  int wait_status = 0;
  waitpid(*pid, &wait_status, 0);
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("perigee-worker did not list this machine's devices within ",
                     absl::FormatDuration(timeout)));
  }
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kDone) return ParseDeviceList(lines);
  const std::string said = absl::StrJoin(lines, "; ");
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kWrongUse) {
    return absl::InvalidArgumentError(said);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "perigee-worker, listing this machine's devices, ", DescribeExit(wait_status), ": ", said));
}

}  // namespace perigee
