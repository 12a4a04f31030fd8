#include "client/cli/run/step_command.h"

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
#include "client/cli/run/run_cluster.h"
#include "client/cli/run/step_report.h"
#include "client/cli/run/step_session.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr const char* kName = "run moe-step";
constexpr int32_t kRanks = 4;

struct Settings {
  std::string input;
  StepSizes sizes = {0, 64, 48, 3, 8, 3};
  int32_t tokens = 16;  // of each rank
  absl::optional<int32_t> ranks, slots;
  int32_t seed = 1;
  SupervisorOptions cluster;  // of its own
  int32_t iterations = 1;
  int32_t token_padding = kTokenPadding;
  std::string address;
  bool json = false;
};

constexpr const char* kShapeFlags[] = {"tokens", "hidden", "intermediate", "topk", "experts"};

void Declare(Settings& settings, FlagSet& flags) {
  flags.Optional("input", "FILE",
                 "safetensors file with a layer and its tokens; without it, random ones",
                 &settings.input);
  flags.Optional("layers", "L", "layers, each on the last one's output; of a file, the same one",
                 &settings.sizes.layers, 1, 64);
  flags.Optional(
      "ranks", "R",
      absl::StrCat("ranks that share the tokens; without it ", kRanks, ", or as in the file"),
      &settings.ranks, 1, 128);
  flags.Optional("tokens", "S", "random tokens of each rank", &settings.tokens, 1, 1 << 20);
  flags.Optional("hidden", "H", "size of a random token", &settings.sizes.hidden, 8, 1 << 16);
  flags.Optional("intermediate", "H'", "size of a token within a random expert",
                 &settings.sizes.intermediate, 8, 1 << 16);
  flags.Optional("topk", "K", "random experts of each token", &settings.sizes.topk, 1, 128);
  flags.Optional("experts", "E", "random experts", &settings.sizes.experts, 1, 4096);
  flags.Optional("seed", "N", "of what is random", &settings.seed);
  DeclareBackendFlags(flags, settings.cluster);
  flags.Optional("iterations", "I", "how often the step is taken", &settings.iterations, 1);
  flags.Optional("token-padding", "P", "rows that a group of rows is padded to a multiple of",
                 &settings.token_padding, 1);
  flags.Optional("slots", "B",
                 "places for replicas on each rank, at least experts / ranks, as without it",
                 &settings.slots, 0);
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to use, its workers on this machine; without it ",
                              kAddressVariable, ", without both a cluster of its own"),
                 &settings.address);
  flags.Optional("threads", "T", "threads of each worker of its own cluster",
                 &settings.cluster.threads, 1, 1024);
  flags.Boolean("json", "print the result as JSON", &settings.json);
}

// Flags that cannot be given together; empty: they can.
std::string Conflict(const FlagSet& flags, const Settings& settings, const std::string& address) {
  for (const char* name : {"threads", "shared-gpu", "memory-handle"}) {
    if (!address.empty() && flags.given(name)) {
      return absl::StrCat("--", name, " is for a cluster of its own, not for one at an address");
    }
  }
  for (const char* name : kShapeFlags) {
    if (!settings.input.empty() && flags.given(name)) {
      return absl::StrCat("--", name, " is for random tokens, not for those of --input");
    }
  }
  return BackendFlagsConflict(flags, settings.cluster);
}

// Sizes that do not fit each other; empty: they do.
std::string Misfit(const StepSizes& sizes, const StepOptions& options) {
  if (sizes.tokens % options.ranks != 0) {
    return absl::StrCat("--ranks ", options.ranks, " does not divide the ", sizes.tokens,
                        " tokens");
  }
  if (sizes.experts % options.ranks != 0) {
    return absl::StrCat("--ranks ", options.ranks, " does not divide the ", sizes.experts,
                        " experts");
  }
  if (sizes.topk > sizes.experts) {
    return absl::StrCat("--topk ", sizes.topk, " of ", sizes.experts, " experts");
  }
  for (const int32_t size : {sizes.hidden, sizes.intermediate}) {
    if (size % 8 != 0) return absl::StrCat(size, " is not a multiple of 8, as H and H' must be");
  }
  return "";
}

StepReport MakeReport(const Settings& settings, const StepInput& input, const StepOptions& options,
                      const StepSession& session) {
  StepReport report;
  report.input = settings.input;
  report.sizes = input.sizes;
  report.slots = options.slots;
  report.token_padding = options.token_padding;
  report.iterations = options.iterations;
  report.steps_that_differ = session.steps_that_differ();
  report.seed = settings.seed;
  report.group = session.group();
  report.timings = session.timings();
  for (const StepOutcome& outcome : session.outcomes()) report.replicas += outcome.replicas;
  report.checks = CheckStep(input.sizes, session.outcomes(), ComputeStep(input));
  return report;
}

int RunSession(const RunContext& context, const Settings& settings, const StepInput& input,
               const StepOptions& options) {
  RunProgress& progress = context.progress;
  StepSession session(context.client, input, options, context.stop);
  const absl::Status ran = session.Run([&progress](int32_t done) { progress.Update(done); });
  // A group of a cluster that goes with this command needs no closing after a failure.
  if (ran.ok() || !context.own_cluster) {
    const absl::Status deleted = session.Delete();
    if (!deleted.ok()) {
      progress.Message(absl::StrCat("the group was not removed: ", deleted.message()));
    }
  }
  if (!ran.ok()) return RunFailed(kName, ran, progress);
  const StepReport report = MakeReport(settings, input, options, session);
  const int printed = PrintResult(settings.json ? StepJson(report) : StepText(report));
  return report.passes() ? printed : kFailed;
}

int RunStep(const std::vector<std::string>& args) {
  Settings settings;
  FlagSet flags(kName, "Takes a training step of mixture-of-experts layers through a cluster.");
  Declare(settings, flags);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const std::string address = CoordinatorAddress(settings.address);
  const std::string conflict = Conflict(flags, settings, address);
  if (!conflict.empty()) return flags.WrongUse(conflict);
  StepInput input;
  StepOptions options;
  options.ranks = settings.ranks.value_or(kRanks);
  if (!settings.input.empty()) {
    auto file = LayerInput::Open(settings.input);
    if (!file.ok()) return PrintFailure(kName, file.status());
    options.ranks = settings.ranks.value_or(file->file_ranks());
    input = StepOfFile(*file, settings.sizes.layers, settings.seed);
  } else {
    settings.sizes.tokens = int64_t{settings.tokens} * options.ranks;
    input.sizes = settings.sizes;
  }
  const std::string misfit = Misfit(input.sizes, options);
  if (!misfit.empty()) return flags.WrongUse(misfit);
  if (settings.input.empty()) input = RandomStep(input.sizes, settings.seed);
  options.backend = settings.cluster.backend;
  options.iterations = settings.iterations;
  options.token_padding = settings.token_padding;
  options.slots = settings.slots.value_or(input.sizes.experts / options.ranks);
  SupervisorOptions own = settings.cluster;
  own.ranks = options.ranks;
  own.restart = false;
  return RunOnCluster(kName, address, own, options.iterations, [&](const RunContext& context) {
    return RunSession(context, settings, input, options);
  });
}

}  // namespace

const Command kRunStepCommand = {"moe-step", "a training step of layers, forward and backward",
                                 RunStep};

}  // namespace perigee
