#include "client/cli/run/run_cluster.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/interrupt.h"
#include "client/cli/cluster/local_cluster.h"
#include "client/cli/command.h"
#include "client/cli/output.h"
#include "client/cli/run/watch.h"
#include "proto/support/clock.h"

namespace perigee {
namespace {

int Fail(const std::string& command, const absl::Status& status) {
  PrintFailure(command, absl::IsCancelled(status) ? absl::CancelledError("cancelled") : status);
  return absl::IsInvalidArgument(status) ? kWrongUse : kFailed;
}

}  // namespace

int RunOnCluster(const std::string& command, const std::string& address,
                 const SupervisorOptions& own, int32_t iterations,
                 const std::function<int(const RunContext&)>& work) {
  // Before anything starts a thread: signals are blocked in all of them, and the cluster's
  // supervisor is forked from a process that has only one.
  const auto interrupts = TakeInterrupts();
  if (!interrupts.ok()) return PrintFailure(command, interrupts.status());
  std::unique_ptr<LocalCluster> cluster;
  if (address.empty()) {
    auto started = LocalCluster::Start(own);
    if (!started.ok()) return Fail(command, started.status());
    cluster = *std::move(started);
    const absl::Status ready = cluster->WaitUntilReady(interrupts->get());
    if (!ready.ok()) return Fail(command, ready);
  }
  RunProgress progress(iterations, isatty(STDERR_FILENO) != 0, RealClock(),
                       [](const std::string& text) { std::cerr << text << std::flush; });
  std::stop_source stop;
  const RunWatch watch(interrupts->get(), cluster.get(), stop,
                       [&progress](const std::string& line) { progress.Message(line); });
  const std::string where = cluster != nullptr ? cluster->coordinator() : address;
  auto client = Client::Connect({.address = where, .stop = stop.get_token()});
  if (!client.ok()) {
    Fail(command, client.status());
    return kFailed;
  }
  return work({**client, stop.get_token(), progress, cluster != nullptr});
}

int RunFailed(const std::string& command, const absl::Status& status, RunProgress& progress) {
  progress.Message(
      absl::StrCat("perigee ", command, ": ",
                   absl::IsCancelled(status) ? "cancelled" : std::string(status.message())));
  return kFailed;
}

}  // namespace perigee
