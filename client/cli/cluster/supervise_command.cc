#include "client/cli/cluster/supervise_command.h"

#include <sys/prctl.h>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/supervisor.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"

namespace perigee {
namespace {

int RunSupervise(const std::vector<std::string>& args) {
  SupervisorOptions options;
  int32_t events_fd = -1;
  int32_t parent_fd = -1;
  FlagSet flags("supervise",
                "Owns the processes of a local cluster for the command that started "
                "it.");
  flags.Required("ranks", "N", "workers", &options.ranks, 1);
  flags.Optional("backend", "NAME", "their backend", &options.backend);
  flags.Boolean("shared-gpu", "all workers have the first device", &options.shared_gpu);
  flags.Optional("sms", "N", "of its device that each may take", &options.sms, 0);
  flags.Optional("memory-handle", "KIND", "of their memory", &options.memory_handle);
  flags.Optional("threads", "T", "threads of each", &options.threads, 1);
  flags.Optional("address", "HOST:PORT", "of the coordinator", &options.address);
  flags.Optional("dir", "DIR", "where data and logs stay", &options.dir);
  flags.Boolean("restart", "start lost workers again", &options.restart);
  flags.Required("events-fd", "FD", "where events are written", &events_fd, 0);
  flags.Required("parent-fd", "FD", "a pipe that ends with the parent", &parent_fd, 0);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  // Not to be found by the name of the command it serves: whoever kills that must leave this one.
  prctl(PR_SET_NAME, "supervisor");
  const auto programs = FindPrograms();
  if (!programs.ok()) return PrintFailure("supervise", programs.status());
  Supervisor supervisor(options, *programs, FileDescriptor(events_fd), FileDescriptor(parent_fd),
                        RealClock());
  return supervisor.Run();
}

}  // namespace

const Command kSuperviseCommand = {"supervise", "", RunSupervise};

std::vector<std::string> SuperviseArguments(const SupervisorOptions& options, int events_fd,
                                            int parent_fd) {
  return {"supervise",
          absl::StrCat("--ranks=", options.ranks),
          absl::StrCat("--backend=", options.backend),
          absl::StrCat("--shared-gpu=", options.shared_gpu ? "true" : "false"),
          absl::StrCat("--sms=", options.sms),
          absl::StrCat("--memory-handle=", options.memory_handle),
          absl::StrCat("--threads=", options.threads),
          absl::StrCat("--address=", options.address),
          absl::StrCat("--dir=", options.dir),
          absl::StrCat("--restart=", options.restart ? "true" : "false"),
          absl::StrCat("--events-fd=", events_fd),
          absl::StrCat("--parent-fd=", parent_fd)};
}

}  // namespace perigee
