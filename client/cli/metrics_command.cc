#include "client/cli/metrics_command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/coordinator_address.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/cli/transport_view.h"
#include "client/lib/client.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr char kName[] = "metrics";

int Run(const std::vector<std::string>& args) {
  std::string address;
  FlagSet flags(kName, "Prints metrics of all groups once, in Prometheus' text format.");
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to ask; without it ", kAddressVariable), &address);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const std::string coordinator = CoordinatorAddress(address);
  if (coordinator.empty()) {
    return flags.WrongUse(
        absl::StrCat("which coordinator? Give --address or set ", kAddressVariable));
  }
  const auto client = Client::Connect({.address = coordinator});
  if (!client.ok()) return PrintFailure(kName, client.status());
  const auto workers = (*client)->ListWorkers();
  if (!workers.ok()) return PrintFailure(kName, workers.status());
  return PrintResult(MetricsText(*workers));
}

}  // namespace

const Command kMetricsCommand = {kName, "print metrics of all groups, for Prometheus", Run};

}  // namespace perigee
