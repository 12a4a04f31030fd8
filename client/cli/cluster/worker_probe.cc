#include "client/cli/cluster/worker_probe.h"

#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/line_pipe.h"
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

absl::StatusOr<WorkerAnswer> ProbeWorker(const std::string& worker_program, const std::string& flag,
                                         absl::Duration timeout) {
  auto output = NewPipe();
  if (!output.ok()) return output.status();
  ChildOptions options;
  options.path = worker_program;
  options.args = {"perigee-worker", flag};
  options.output_fd = output->write.get();
  options.die_with_parent = true;
  const auto pid = StartChild(options);
  if (!pid.ok()) return pid.status();
  output->write.Reset();
  LineReader reader(std::move(output->read));
  WorkerAnswer answer;
  answer.in_time = ReadLines(reader, timeout, answer.lines);
  if (!answer.in_time) kill(*pid, SIGKILL);
  waitpid(*pid, &answer.wait_status, 0);
  return answer;
}

}  // namespace perigee
