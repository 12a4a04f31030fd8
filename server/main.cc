// perigee-coordinator: the coordinator of a cluster as a process.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "proto/local/stop_watch.h"
#include "proto/support/command_line.h"
#include "proto/support/event_log.h"
#include "server/coordinator.h"

ABSL_FLAG(std::string, address, "127.0.0.1:0", "HOST:PORT to serve at; port 0: any");
ABSL_FLAG(std::string, data_dir, "", "directory for what survives a restart; made if missing");
ABSL_FLAG(
    std::string, master_key_file, "",
    "file with the 32 bytes that keys of publication tokens are derived from; made if missing, "
    "by default master.key in data_dir");
ABSL_FLAG(int, ready_fd, -1, "descriptor to write the address to once it serves");
ABSL_FLAG(int, death_fd, -1, "descriptor whose end means that the supervisor has gone");

namespace perigee {
namespace {

const std::vector<std::string> kFlags = {"address", "data_dir", "master_key_file", "ready_fd",
                                         "death_fd"};

int Fail(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "perigee-coordinator: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

void AnnounceReady(int fd, const std::string& address) {
  if (fd < 0) return;
  const std::string line = address + "\n";
  if (write(fd, line.data(), line.size()) < 0) {
    LogEvent(LogLevel::kWarning, "ready_fd_broken", {{"fd", fd}});
  }
  close(fd);
}

int Run() {
  InitLogging("coordinator", LogLevel::kInfo);
  StopWatch watch(absl::GetFlag(FLAGS_death_fd));
  CoordinatorOptions options;
  options.address = absl::GetFlag(FLAGS_address);
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.master_key_file = absl::GetFlag(FLAGS_master_key_file);
  const auto coordinator = Coordinator::Start(options);
  if (!coordinator.ok()) {
    return Fail(coordinator.status(), absl::IsInvalidArgument(coordinator.status()) ? 2 : 1);
  }
  LogEvent(LogLevel::kInfo, "serving", {{"address", (*coordinator)->address()}});
  AnnounceReady(absl::GetFlag(FLAGS_ready_fd), (*coordinator)->address());
  watch.Await();
  (*coordinator)->Shutdown();
  return watch.exit_status();
}

int Main(const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::printf("perigee-coordinator: the coordinator of a Perigee cluster\n%s",
                DescribeFlags(kFlags).c_str());
    return 0;
  }
  if (absl::Status status = ParseFlags(kFlags, arguments); !status.ok()) return Fail(status, 2);
  if (absl::GetFlag(FLAGS_data_dir).empty()) {
    return Fail(absl::InvalidArgumentError("flag --data_dir is required"), 2);
  }
  return Run();
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Main(std::vector<std::string>(argv + 1, argv + argc));
}
