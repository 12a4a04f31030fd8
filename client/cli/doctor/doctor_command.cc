#include "client/cli/doctor/doctor_command.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/cli/doctor/device_checks.h"
#include "client/cli/doctor/device_facts.h"
#include "client/cli/doctor/kernel_checks.h"
#include "client/cli/doctor/kernel_facts.h"
#include "client/cli/doctor/machine_checks.h"
#include "client/cli/doctor/machine_facts.h"
#include "client/cli/doctor/network_checks.h"
#include "client/cli/doctor/network_facts.h"
#include "client/cli/doctor/place_checks.h"
#include "client/cli/doctor/place_facts.h"
#include "client/cli/doctor/report.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"

namespace perigee {
namespace {

constexpr char kName[] = "doctor";
constexpr char kFound[] = "auto";
// As `run` and `bench` start without --ranks.
constexpr int32_t kHostRanks = 2;

struct Options {
  std::string backend = kFound;
  absl::optional<int32_t> ranks;
  std::string address = "127.0.0.1:0";
  bool json = false;
};

void AddFlags(FlagSet& flags, Options& options) {
  flags.Choice("backend", {kFound, "host", "cuda"},
               "what the workers shall compute on; auto: cuda where a device is found, else host",
               &options.backend);
  flags.Optional("ranks", "N",
                 "workers that shall run here (default: one for each CUDA device; host: 2)",
                 &options.ranks, 1, 128);
  flags.Optional("address", "HOST:PORT", "where the coordinator shall listen; port 0: any free one",
                 &options.address);
  flags.Boolean("json", "print JSON (keys: docs/cli.md)", &options.json);
}

void Append(std::vector<Finding> more, std::vector<Finding>& findings) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

DeviceFacts FindDevices(const Options& options, const PlaceFacts& places) {
  if (options.backend == "host") return {};
  if (places.programs.ok()) return GatherDeviceFacts(places.programs->worker);
  DeviceFacts facts;
  facts.problem = "there is no perigee-worker to ask";
  return facts;
}

// Where the host backend is examined since no device was found.
Finding NoDevices(const DeviceFacts& facts) {
  return Judge(facts.problem.empty(), FindingState::kWarn,
               {.name = "cuda_devices",
                .found = facts.problem.empty() ? "none, so the host backend is examined"
                                               : absl::StrCat("not known: ", facts.problem),
                .expected = "any: --backend auto takes cuda where there is one",
                .remedy = "perigee doctor --backend cuda says more"});
}

// Facts are gathered by forking, so before anything starts a thread.
DoctorReport Examine(const Options& options) {
  const KernelFacts kernel = GatherKernelFacts();
  const PlaceFacts places = GatherPlaceFacts();
  const DeviceFacts devices = FindDevices(options, places);
  const bool cuda =
      options.backend == "cuda" || (options.backend == kFound && devices.devices() > 0);
  DoctorReport report;
  report.backend = cuda ? "cuda" : "host";
  report.ranks = options.ranks.value_or(cuda ? std::max(devices.devices(), 1) : kHostRanks);
  Append(CheckKernel(kernel), report.checks);
  Append(CheckMachine(GatherMachineFacts(), report.ranks, cuda), report.checks);
  Append(CheckPlaces(places), report.checks);
  Append(CheckNetwork(GatherNetworkFacts(options.address)), report.checks);
  if (cuda) {
    Append(CheckDevices(devices, report.ranks), report.checks);
  } else if (options.backend == kFound) {
    report.checks.push_back(NoDevices(devices));
  }
  return report;
}

int RunDoctor(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags(kName, "Says whether workers can run on this machine, and what to do if not.");
  AddFlags(flags, options);
  if (absl::optional<int> status = flags.ParseOrExit(args)) return *status;
  const absl::Status address = CheckHostPort(options.address);
  if (!address.ok()) return flags.WrongUse(absl::StrCat("--address is ", address.message()));
  const DoctorReport report = Examine(options);
  const int printed = PrintResult(options.json ? DoctorJson(report) : DoctorText(report));
  return report.Count(FindingState::kFail) == 0 ? printed : kFailed;
}

}  // namespace

const Command kDoctorCommand = {
    kName, "say whether workers can run on this machine, and what to do", RunDoctor};

}  // namespace perigee
