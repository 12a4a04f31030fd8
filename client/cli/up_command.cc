#include "client/cli/up_command.h"

#include <poll.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/backend_flags.h"
#include "client/cli/cluster/cluster_events.h"
#include "client/cli/cluster/interrupt.h"
#include "client/cli/cluster/local_cluster.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/lib/client.h"

namespace perigee {
namespace {

std::string ReadyText(const LocalCluster& cluster, const SupervisorOptions& options) {
  std::string text = absl::StrCat("coordinator ", cluster.coordinator(), "\n");
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    const std::string name = absl::StrCat("w", rank);
    const LocalCluster::Process& worker = cluster.workers().at(name);
    absl::StrAppend(&text, "worker ", name, " ", worker.address, " pid ", worker.pid, "\n");
  }
  return absl::StrCat(text, "ready: ", options.ranks, " workers on the ", options.backend,
                      " backend; PERIGEE_ADDRESS=", cluster.coordinator(), "; Ctrl-C ends them\n");
}

std::string ReadyJson(const LocalCluster& cluster, const SupervisorOptions& options) {
  JsonWriter json;
  json.BeginObject();
  json.Field("coordinator", cluster.coordinator());
  json.Field("backend", options.backend);
  json.Field("directory", options.dir.empty() ? cluster.directory() : options.dir);
  json.Key("workers");
  json.BeginArray();
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    const std::string name = absl::StrCat("w", rank);
    const LocalCluster::Process& worker = cluster.workers().at(name);
    json.BeginObject();
    json.Field("name", absl::StrCat("workers/", name));
    json.Field("address", worker.address);
    json.Field("pid", static_cast<int64_t>(worker.pid));
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

void Say(const std::string& message) {
  if (!message.empty()) std::cerr << "perigee up: " << message << std::endl;
}

// Waits for Ctrl-C or the cluster's failure, telling what happens to workers meanwhile.
void Watch(LocalCluster& cluster, int interrupt_fd) {
  while (!cluster.failure()) {
    pollfd fds[] = {{cluster.event_fd(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
    poll(fds, 2, -1);
    for (const SupervisorEvent& event : cluster.TakeEvents()) Say(DescribeClusterEvent(event));
    if (fds[1].revents != 0 && TookInterrupt(interrupt_fd)) return;
  }
}

// Closes every group in good order, as far as that goes before a second Ctrl-C. Returns a thread to
// join once the cluster has stopped, which ends its calls.
std::thread Drain(const std::string& coordinator, int interrupt_fd) {
  auto client = Client::Connect({.address = coordinator});
  if (!client.ok()) {
    Say(absl::StrCat("not drained: ", client.status().message()));
    return {};
  }
  const auto groups = (*client)->ListGroups();
  auto ended = NewPipe();
  if (!groups.ok() || groups->empty() || !ended.ok()) return {};
  Say(absl::StrCat("draining ", groups->size(), " groups; Ctrl-C again ends them at once"));
  std::thread drain(
      [client = *std::move(client), groups = *groups, done = std::move(ended->write)]() mutable {
        for (const v1::Group& group : groups) {
          const auto drained = client->DrainGroup(group.name());
          if (!drained.ok()) Say(absl::StrCat(group.name(), ": ", drained.status().message()));
        }
        done.Reset();
      });
  pollfd fds[] = {{ended->read.get(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
  poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kDrainTimeout)));
  return drain;
}

int NotStarted(const absl::Status& status) {
  PrintFailure("up", status);
  return absl::IsInvalidArgument(status) ? kWrongUse : kFailed;
}

int RunUp(const std::vector<std::string>& args) {
  SupervisorOptions options;
  bool json = false;
  FlagSet flags("up", "Starts a coordinator and N workers on this machine and keeps them running.");
  flags.Required("ranks", "N", "workers to start", &options.ranks, 1, 128);
  DeclareBackendFlags(flags, options);
  flags.Optional("threads", "T", "threads of each worker", &options.threads, 1, 1024);
  flags.Optional("address", "HOST:PORT", "where the coordinator listens; port 0: any free one",
                 &options.address);
  flags.Optional("dir", "DIR", "keep the coordinator's data and all logs there", &options.dir);
  flags.Boolean("json", "print addresses as JSON", &json);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const std::string conflict = BackendFlagsConflict(flags, options);
  if (!conflict.empty()) return flags.WrongUse(conflict);
  if (!options.dir.empty()) options.dir = std::filesystem::absolute(options.dir).string();

  const auto interrupts = TakeInterrupts();
  if (!interrupts.ok()) return PrintFailure("up", interrupts.status());
  auto cluster = LocalCluster::Start(options);
  if (!cluster.ok()) return NotStarted(cluster.status());
  const absl::Status ready = (*cluster)->WaitUntilReady(interrupts->get());
  if (absl::IsCancelled(ready)) return kDone;
  if (!ready.ok()) return NotStarted(ready);
  if (PrintResult(json ? ReadyJson(**cluster, options) : ReadyText(**cluster, options)) != kDone) {
    return kFailed;
  }
  Watch(**cluster, interrupts->get());
  if ((*cluster)->failure()) return kFailed;
  std::thread drain = Drain((*cluster)->coordinator(), interrupts->get());
  (*cluster)->Stop();
  if (drain.joinable()) drain.join();
  return kDone;
}

}  // namespace

const Command kUpCommand = {"up", "start a coordinator and workers on this machine", RunUp};

}  // namespace perigee
