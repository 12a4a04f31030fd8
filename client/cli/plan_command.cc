#include "client/cli/plan_command.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/cli/plan_input.h"
#include "client/cli/plan_report.h"
#include "client/cli/plan_tensors.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

constexpr char kName[] = "plan";
constexpr int32_t kDefaultHidden = 7168;

struct Options {
  std::string input;
  std::string output;
  RouteSelection selection;
  int32_t experts = 0;
  int32_t token_padding = Geometry().token_padding;
  absl::optional<int32_t> slots;
  int32_t hidden = kDefaultHidden;
  bool json = false;
};

void AddFlags(FlagSet& flags, Options& options) {
  flags.Required("input", "FILE",
                 "safetensors file: topk_experts, of any integer type, -1 = masked; "
                 "token_counts [R] if there is one",
                 &options.input);
  flags.Required("experts", "E", "experts of the group, a multiple of the ranks", &options.experts,
                 1, kMaxExperts);
  flags.Required("output", "OUT", "safetensors file to write the plan to", &options.output);
  flags.Optional(
      "layer", "L",
      "topk_experts is [layers, tokens, K]: take this layer, tokens shared out to --ranks",
      &options.selection.layer, 0);
  flags.Optional("ranks", "R", "ranks; with --layer required, else as topk_experts [R, S, K] says",
                 &options.selection.ranks, 1, kMaxRanks);
  flags.Optional("tokens", "S", "at most so many tokens of each rank (default all)",
                 &options.selection.tokens, 0);
  flags.Optional("token-padding", "P", "rows that a group is padded to a multiple of",
                 &options.token_padding, 1);
  flags.Optional("slots", "B", "prefetch slots of each rank (default experts / ranks)",
                 &options.slots, 0, kMaxSlots);
  flags.Optional("hidden", "H", "elements of a bf16 row, for the sizes printed", &options.hidden, 1,
                 1 << 16);
  flags.Boolean("json", "print the summary as JSON (keys: docs/cli.md)", &options.json);
}

int RunPlan(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags(kName, "Plans where every recorded route goes, and says what balancing gains.");
  AddFlags(flags, options);
  if (absl::optional<int> status = flags.ParseOrExit(args)) return *status;
  if (options.selection.layer && !options.selection.ranks) {
    return flags.WrongUse("--ranks is missing, expected with --layer");
  }

  absl::StatusOr<RecordedRoutes> routes = ReadRoutes(options.input, options.selection);
  if (absl::IsFailedPrecondition(routes.status())) return flags.WrongUse(routes.status().message());
  if (!routes.ok()) return PrintFailure(kName, routes.status());
  Geometry geometry{.ranks = routes->ranks,
                    .experts = options.experts,
                    .tokens = routes->tokens,
                    .topk = routes->topk,
                    .slots = options.slots.value_or(options.experts / routes->ranks),
                    .token_padding = options.token_padding};
  if (absl::Status status = ValidateGeometry(geometry); !status.ok()) {
    return flags.WrongUse(status.message());
  }
  absl::StatusOr<std::vector<int32_t>> topk_experts = NarrowRoutes(*routes, options.experts);
  if (!topk_experts.ok()) {
    return PrintFailure(kName, absl::InvalidArgumentError(absl::StrCat(
                                   options.input, ": ", topk_experts.status().message())));
  }

  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<GroupPlan> plan = PlanGroup(geometry, *topk_experts, routes->token_counts);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  if (!plan.ok()) return PrintFailure(kName, plan.status());
  if (absl::Status status = WritePlan(options.output, *plan); !status.ok()) {
    return PrintFailure(kName, status);
  }
  PlanReport report = MakePlanReport(*plan, options.hidden);
  report.planning_ms = elapsed.count();
  report.output = options.output;
  return PrintResult(options.json ? PlanReportJson(report) : PlanReportText(report));
}

}  // namespace

const Command kPlanCommand = {kName, "plan recorded routes, with no service", RunPlan};

}  // namespace perigee
