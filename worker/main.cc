// perigee-worker: one worker process.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend_registry.h"
#include "proto/local/stop_watch.h"
#include "proto/support/command_line.h"
#include "proto/support/event_log.h"
#include "worker/worker.h"

ABSL_FLAG(std::string, name, "", "name of this worker: lower-case letters, digits and dashes");
ABSL_FLAG(std::string, coordinator, "", "HOST:PORT of the coordinator");
ABSL_FLAG(std::string, address, "127.0.0.1:0", "HOST:PORT to serve clients at; port 0: any");
ABSL_FLAG(std::string, socket_dir, "", "directory, private to this user, for the peers' socket");
ABSL_FLAG(std::string, backend, "host", "what runs the data path");
ABSL_FLAG(int, threads, 1, "threads that share one operation's rows");
ABSL_FLAG(std::string, host, "", "name of this machine; empty: its host name");
ABSL_FLAG(int, ready_fd, -1, "descriptor to write this worker's address to once it is registered");
ABSL_FLAG(int, death_fd, -1, "descriptor whose end means that the supervisor has gone");

namespace perigee {
namespace {

const std::vector<std::string> kFlags = {"name",       "coordinator", "address",
                                         "socket_dir", "backend",     "threads",
                                         "host",       "ready_fd",    "death_fd"};

// A host name in the form that resource names have.
std::string HostId() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  std::string id = absl::AsciiStrToLower(name);
  id.resize(std::min<size_t>(id.size(), 63));
  for (char& c : id) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return id.empty() || id[0] == '-' ? "localhost" : id;
}

// Every mapping of a peer's memory holds a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void AnnounceReady(int fd, const std::string& address) {
  if (fd < 0) return;
  const std::string line = address + "\n";
  if (write(fd, line.data(), line.size()) < 0) {
    LogEvent(LogLevel::kWarning, "ready_fd_broken", {{"fd", fd}});
  }
  close(fd);
}

int Fail(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "perigee-worker: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

absl::StatusOr<WorkerOptions> OptionsFromFlags() {
  for (const char* required : {"name", "coordinator", "socket_dir"}) {
    if (absl::FindCommandLineFlag(required)->CurrentValue().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", required, " is required"));
    }
  }
  WorkerOptions options;
  options.name = absl::GetFlag(FLAGS_name);
  options.host = absl::GetFlag(FLAGS_host).empty() ? HostId() : absl::GetFlag(FLAGS_host);
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.address = absl::GetFlag(FLAGS_address);
  options.socket_dir = absl::GetFlag(FLAGS_socket_dir);
  options.threads = absl::GetFlag(FLAGS_threads);
  absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend(absl::GetFlag(FLAGS_backend));
  if (!backend.ok()) return backend.status();
  options.backend = *std::move(backend);
  return options;
}

int Run(WorkerOptions options, StopWatch& watch) {
  options.stop = &watch.stop();
  options.on_leave = [&watch](const absl::Status&) { watch.Leave(); };
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  if (absl::IsCancelled(worker.status())) return watch.exit_status();
  if (!worker.ok()) return Fail(worker.status(), absl::IsInvalidArgument(worker.status()) ? 2 : 1);
  watch.set_leftover((*worker)->socket_path());
  AnnounceReady(absl::GetFlag(FLAGS_ready_fd), (*worker)->address());
  watch.Await();
  (*worker)->Shutdown();
  return watch.exit_status();
}

int Main(const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::printf("perigee-worker: one worker of a Perigee cluster\n%s",
                DescribeFlags(kFlags).c_str());
    return 0;
  }
  if (absl::Status status = ParseFlags(kFlags, arguments); !status.ok()) return Fail(status, 2);
  absl::StatusOr<WorkerOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status(), 2);
  InitLogging(absl::StrCat("worker/", options->name), LogLevel::kInfo);
  RaiseDescriptorLimit();
  StopWatch watch(absl::GetFlag(FLAGS_death_fd));
  return Run(*std::move(options), watch);
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Main(std::vector<std::string>(argv + 1, argv + argc));
}
