#include "client/cli/run/layer_command.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/cli/cluster/backend_flags.h"
#include "client/cli/cluster/supervisor_options.h"
#include "client/cli/coordinator_address.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/cli/run/layer_compare.h"
#include "client/cli/run/layer_input.h"
#include "client/cli/run/layer_path.h"
#include "client/cli/run/layer_report.h"
#include "client/cli/run/layer_session.h"
#include "client/cli/run/progress.h"
#include "client/cli/run/run_cluster.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr const char* kName = "run moe-layer";

struct Settings {
  std::string input;
  absl::optional<int32_t> ranks;
  absl::optional<int32_t> slots;
  SupervisorOptions cluster;  // of its own
  int32_t iterations = 1;
  int32_t token_padding = kTokenPadding;
  std::string address;
  std::string on_loss = "fail";
  std::string path = PathName(DispatchPath::kOrdinary);
  std::string path_table;
  bool direct = false;
  bool source = false;
  std::string transport = "nvlink";
  bool json = false;
};

void Declare(Settings& settings, FlagSet& flags) {
  flags.Required("input", "FILE", "safetensors file with a layer and its tokens", &settings.input);
  flags.Optional("ranks", "R", "ranks that share the tokens; without it, as in the file",
                 &settings.ranks, 1, 128);
  DeclareBackendFlags(flags, settings.cluster);
  DeclareTransportFlag(flags, settings.transport);
  flags.Optional("iterations", "I", "how often the layer is run", &settings.iterations, 1);
  flags.Optional("token-padding", "P", "rows that a group of rows is padded to a multiple of",
                 &settings.token_padding, 1);
  flags.Optional("slots", "B", "places for replicas on each rank; without it, experts / ranks",
                 &settings.slots, 0);
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to use; without it ", kAddressVariable,
                              ", without both a cluster of its own"),
                 &settings.address);
  flags.Optional("threads", "T", "threads of each worker of its own cluster",
                 &settings.cluster.threads, 1, 1024);
  flags.Choice("on-loss", {"fail", "wait"},
               "what to do when a rank is lost: end, or go on in the group's next generation",
               &settings.on_loss);
  flags.Choice("path", LayerPathNames(), "the path that rows take; auto: by measured costs",
               &settings.path);
  flags.Optional("path-table", "FILE", "of --path auto, as kept by 'perigee bench --calibrate'",
                 &settings.path_table);
  flags.Boolean("direct", "--path direct: publish rows directly instead of dispatching them",
                &settings.direct);
  flags.Boolean("source", "--path pull: leave rows with their owners, and each rank fetches",
                &settings.source);
  flags.Boolean("json", "print the result as JSON", &settings.json);
}

// Flags that cannot be given together; empty: they can.
std::string Conflict(const FlagSet& flags, const Settings& settings, const std::string& address) {
  for (const char* name : {"threads", "shared-gpu", "memory-handle"}) {
    if (!address.empty() && flags.given(name)) {
      return absl::StrCat("--", name, " is for a cluster of its own, not for one at an address");
    }
  }
  if (settings.direct + settings.source + flags.given("path") > 1) {
    return "--path, --direct and --source each name a path, expected one of them";
  }
  const bool pull = settings.source || settings.path == PathName(DispatchPath::kPull);
  if (pull && settings.transport == "nccl") {
    return "path pull needs ranks that read each other's memory, which --transport nccl has not";
  }
  if (settings.path == kAutoPath && settings.path_table.empty()) {
    return "--path auto needs measured costs, expected --path-table";
  }
  if (settings.path != kAutoPath && flags.given("path-table")) {
    return "--path-table is for --path auto";
  }
  return BackendFlagsConflict(flags, settings.cluster, settings.transport);
}

// Sizes that the command line and the file must agree on; empty: they do.
std::string Disagreement(const Settings& settings, const LayerInput& input, int32_t ranks) {
  if (input.tokens() % ranks != 0) {
    return absl::StrCat("--ranks ", ranks, " does not divide the ", input.tokens(), " tokens of ",
                        settings.input);
  }
  if (input.experts() % ranks != 0) {
    return absl::StrCat("--ranks ", ranks, " does not divide the ", input.experts(), " experts of ",
                        settings.input);
  }
  return "";
}

RunLayerReport MakeReport(const Settings& settings, const LayerInput& input,
                          const RunLayerOptions& options, const RunLayerSession& session) {
  RunLayerReport report;
  report.input = settings.input;
  report.tokens = input.tokens();
  report.hidden = input.hidden();
  report.intermediate = input.intermediate();
  report.topk = input.topk();
  report.experts = input.experts();
  report.slots = options.slots;
  report.token_padding = options.token_padding;
  report.iterations = options.iterations;
  report.path = session.path();
  report.group = session.group();
  report.generations = session.generations();
  report.plans = session.monitor().plans();
  report.timings = session.monitor().timings();
  if (const auto expected = input.expected_output()) {
    report.comparison = Compare(session.outputs(), *expected);
  }
  return report;
}

int RunSession(const RunContext& context, const Settings& settings, const LayerInput& input,
               const RunLayerOptions& options) {
  RunProgress& progress = context.progress;
  const auto message = [&progress](const std::string& line) { progress.Message(line); };
  RunLayerSession session(context.client, input, options,
                          {message, [&progress](int32_t done) { progress.Update(done); }},
                          context.stop);
  const absl::Status ran = session.Run();
  // A group of a cluster that goes with this command needs no closing after a failure.
  if (ran.ok() || !context.own_cluster) {
    const absl::Status deleted = session.Delete();
    if (!deleted.ok()) message(absl::StrCat("the group was not removed: ", deleted.message()));
  }
  if (!ran.ok()) return RunFailed(kName, ran, progress);
  const RunLayerReport report = MakeReport(settings, input, options, session);
  const int printed = PrintResult(settings.json ? RunLayerJson(report) : RunLayerText(report));
  return report.comparison && !report.comparison->passes() ? kFailed : printed;
}

int RunLayer(const std::vector<std::string>& args) {
  Settings settings;
  FlagSet flags(kName, "Runs a mixture-of-experts layer from a file through a cluster.");
  Declare(settings, flags);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const std::string address = CoordinatorAddress(settings.address);
  const std::string conflict = Conflict(flags, settings, address);
  if (!conflict.empty()) return flags.WrongUse(conflict);
  if (settings.direct) settings.path = PathName(DispatchPath::kDirect);
  if (settings.source) settings.path = PathName(DispatchPath::kPull);
  const bool names_path = flags.given("path") || settings.direct || settings.source;
  absl::StatusOr<LayerPath> path = LayerPath();
  if (names_path) path = ReadLayerPath(settings.path, settings.path_table);
  if (!path.ok()) return PrintFailure(kName, path.status());
  auto input = LayerInput::Open(settings.input);
  if (!input.ok()) return PrintFailure(kName, input.status());
  RunLayerOptions options;
  options.ranks = settings.ranks.value_or(input->file_ranks());
  const std::string disagreement = Disagreement(settings, *input, options.ranks);
  if (!disagreement.empty()) return flags.WrongUse(disagreement);
  options.backend = settings.cluster.backend;
  options.transport = settings.transport;
  options.iterations = settings.iterations;
  options.token_padding = settings.token_padding;
  options.slots = settings.slots.value_or(input->experts() / options.ranks);
  options.wait_on_loss = settings.on_loss == "wait";
  options.path = *path;

  SupervisorOptions own = settings.cluster;
  own.ranks = options.ranks;
  own.restart = options.wait_on_loss;
  return RunOnCluster(kName, address, own, options.iterations, [&](const RunContext& context) {
    return RunSession(context, settings, *input, options);
  });
}

}  // namespace

const Command kRunLayerCommand = {"moe-layer", "a layer with its tokens, from a safetensors file",
                                  RunLayer};

}  // namespace perigee
