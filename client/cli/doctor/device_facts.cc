#include "client/cli/doctor/device_facts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/cluster/child_process.h"
#include "client/cli/cluster/worker_probe.h"
#include "client/cli/command.h"

namespace perigee {
namespace {

// CUDA looks for it there too.
std::string FindMpsPipe() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipe =
      absl::StrCat(folder == nullptr || *folder == '\0' ? "/tmp/nvidia-mps" : folder, "/control");
  return access(pipe.c_str(), F_OK) == 0 ? pipe : "";
}

}  // namespace

int32_t DeviceFacts::devices() const {
  int32_t count = 0;
  return absl::SimpleAtoi(Told("devices"), &count) && count > 0 ? count : 0;
}

std::string DeviceFacts::Told(const std::string& key) const {
  const auto found = told.find(key);
  return found == told.end() ? "" : found->second;
}

std::string DeviceFacts::Of(int32_t device, const std::string& key) const {
  return Told(absl::StrCat("device.", device, ".", key));
}

void TakeDeviceLine(const std::string& line, DeviceFacts& facts) {
  const std::pair<std::string, std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 1));
  if (!words.first.empty() && !words.second.empty()) facts.told[words.first] = words.second;
}

DeviceFacts GatherDeviceFacts(const std::string& worker_program, absl::Duration timeout) {
  DeviceFacts facts;
  facts.mps_pipe = FindMpsPipe();
  const auto answer = ProbeWorker(worker_program, "--describe_devices=true", timeout);
  if (!answer.ok()) {
    facts.problem = std::string(answer.status().message());
    return facts;
  }
  for (const std::string& line : answer->lines) TakeDeviceLine(line, facts);
  if (!answer->in_time) {
    facts.problem = absl::StrCat("perigee-worker had not described this machine's devices within ",
                                 absl::FormatDuration(timeout));
  } else if (!WIFEXITED(answer->wait_status) || WEXITSTATUS(answer->wait_status) != kDone) {
    facts.problem = absl::StrCat("perigee-worker, describing this machine's devices, ",
                                 DescribeExit(answer->wait_status));
  } else {
    return facts;
  }
  if (!answer->lines.empty()) {
    absl::StrAppend(&facts.problem, "; its last line: ", answer->lines.back().substr(0, 200));
  }
  return facts;
}

}  // namespace perigee
