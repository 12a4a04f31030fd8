#include "client/cli/cluster/device_probe.h"

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/worker_probe.h"
#include "client/cli/command.h"

namespace perigee {

absl::StatusOr<std::vector<ListedDevice>> ProbeDevices(const std::string& worker_program,
                                                       absl::Duration timeout) {
  const auto answer = ProbeWorker(worker_program, "--list_devices=true", timeout);
  if (!answer.ok()) return answer.status();
  if (!answer->in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("perigee-worker did not list this machine's devices within ",
                     absl::FormatDuration(timeout)));
  }
  const int ended = answer->wait_status;
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == kDone) return ParseDeviceList(answer->lines);
  const std::string said = absl::StrJoin(answer->lines, "; ");
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == kWrongUse) {
    return absl::InvalidArgumentError(said);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "perigee-worker, listing this machine's devices, ", DescribeExit(ended), ": ", said));
}

}  // namespace perigee
