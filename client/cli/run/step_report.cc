#include "client/cli/run/step_report.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"
#include "client/cli/run/phase_times.h"

namespace perigee {
namespace {

// Rows are rounded to bf16 (2^-9 at most) a few times in each layer, on the way forward and back.
constexpr double kErrorOfLayer = 5e-3;

double Value(BFloat16 value) { return ToFloat(value); }
double Value(float value) { return value; }

// `part` of each rank's outcome, one after the other, against what is expected of all.
template <typename T>
StepCheck Compare(std::string what, const std::vector<StepOutcome>& outcomes,
                  const std::function<const std::vector<T>&(const StepOutcome&)>& part,
                  const std::vector<double>& expected, double limit) {
  StepCheck check{std::move(what), 0, 0, limit};
  double difference_squared = 0, expected_squared = 0;
  size_t next = 0;
  for (const StepOutcome& outcome : outcomes) {
    for (const T found : part(outcome)) {
      const double difference = Value(found) - expected.at(next);
      check.largest_absolute_error = std::max(check.largest_absolute_error, std::abs(difference));
      difference_squared += difference * difference;
      expected_squared += expected[next] * expected[next];
      ++next;
    }
  }
  const double difference = std::sqrt(difference_squared);
  // Where nothing but zeros is expected, there is no scale to measure by: any difference counts.
  check.relative_error = difference == 0 ? 0 : difference / std::sqrt(expected_squared);
  if (next != expected.size()) check.relative_error = std::nan("");
  return check;
}

std::string Title(const StepReport& report) {
  const StepSizes& sizes = report.sizes;
  return absl::StrCat(
      FormatCount(sizes.tokens), " tokens of ", sizes.hidden, " forward and back through ",
      sizes.layers, sizes.layers == 1 ? " layer" : " layers", " of ", sizes.experts, " experts of ",
      sizes.intermediate, ", top ", sizes.topk, ", on ", report.group.members_size(), " ranks (",
      report.group.backend(), " backend); ", FormatCount(report.iterations),
      report.iterations == 1 ? " step" : " steps", ", ", FormatCount(report.replicas),
      report.replicas == 1 ? " replica" : " replicas",
      "\nWorkers compute experts forward; their backward is computed by this command.\n");
}

std::string TimeTable(const StepReport& report) {
  TextTable table({"OPERATION", "SLOWEST RANK", "ITS MEAN", "MEAN"});
  for (const PhaseTimes& phase : SummarizePhases(report.timings)) {
    table.AddRow({phase.operation, absl::StrCat(phase.slowest_rank),
                  absl::StrFormat("%.3f ms", phase.slowest_mean_ns / 1e6),
                  absl::StrFormat("%.3f ms", phase.mean_ns / 1e6)});
  }
  return table.ToString();
}

std::string CheckTable(const StepReport& report) {
  TextTable table({"RESULT", "RELATIVE ERROR", "LIMIT", ""});
  for (const StepCheck& check : report.checks) {
    table.AddRow({check.what, absl::StrFormat("%.3e", check.relative_error),
                  absl::StrFormat("%.1e", check.limit), check.passes() ? "" : "too large"});
  }
  return absl::StrCat(table.ToString(),
                      "Norm of the difference over norm of what double precision gives.\n");
}

std::string RepeatLine(const StepReport& report) {
  if (report.iterations == 1) return "";
  if (report.steps_that_differ == 0) return "Every step left the same bits.\n";
  return absl::StrCat(FormatCount(report.steps_that_differ),
                      " steps left other bits than the first.\n");
}

}  // namespace

std::vector<StepCheck> CheckStep(const StepSizes& sizes, const std::vector<StepOutcome>& outcomes,
                                 const StepExpected& expected) {
  const double forward = kErrorOfLayer * sizes.layers;
  const double back = kErrorOfLayer * (1 + 2 * sizes.layers);
  std::vector<StepCheck> checks;
  checks.push_back(Compare<BFloat16>(
      "output", outcomes, [](const StepOutcome& of) -> const auto& { return of.output; },
      expected.output, forward));
  checks.push_back(Compare<BFloat16>(
      "hidden_grad", outcomes, [](const StepOutcome& of) -> const auto& { return of.hidden_grad; },
      expected.hidden_grad, back));
  for (size_t layer = 0; layer < expected.layers.size(); ++layer) {
    const StepExpected::Layer& of_layer = expected.layers[layer];
    const auto add = [&](const char* what, std::vector<float> StepOutcome::Layer::*found,
                         const std::vector<double>& wanted) {
      checks.push_back(Compare<float>(
          absl::StrCat("layer ", layer, " ", what),
          outcomes, [&](const StepOutcome& of) -> const auto& { return of.layers[layer].*found; },
          wanted, back));
    };
    add("route_weight_grad", &StepOutcome::Layer::route_weight_grad, of_layer.route_weight_grad);
    add("gate_grad", &StepOutcome::Layer::gate_grad, of_layer.gate_grad);
    add("up_grad", &StepOutcome::Layer::up_grad, of_layer.up_grad);
    add("down_grad", &StepOutcome::Layer::down_grad, of_layer.down_grad);
  }
  return checks;
}

bool StepReport::passes() const {
  return steps_that_differ == 0 && std::all_of(checks.begin(), checks.end(),
                                               [](const auto& check) { return check.passes(); });
}

std::string StepText(const StepReport& report) {
  return absl::StrCat(Title(report), "\n", TimeTable(report), "\n", CheckTable(report),
                      RepeatLine(report), report.passes() ? "PASS\n" : "FAIL\n");
}

std::string StepJson(const StepReport& report) {
  JsonWriter json;
  json.BeginObject();
  json.Field("input", report.input);
  json.Field("backend", report.group.backend());
  json.Field("ranks", report.group.members_size());
  json.Field("tokens", report.sizes.tokens);
  json.Field("hidden", report.sizes.hidden);
  json.Field("intermediate", report.sizes.intermediate);
  json.Field("topk", report.sizes.topk);
  json.Field("experts", report.sizes.experts);
  json.Field("layers", report.sizes.layers);
  json.Field("slots", report.slots);
  json.Field("token_padding", report.token_padding);
  json.Field("iterations", report.iterations);
  json.Field("seed", report.seed);
  json.Field("group", report.group.name());
  json.Field("replicas", report.replicas);
  WritePhases(report.timings, json);
  json.Key("checks");
  json.BeginArray();
  for (const StepCheck& check : report.checks) {
    json.BeginObject();
    json.Field("what", check.what);
    json.Field("largest_absolute_error", check.largest_absolute_error);
    json.Field("relative_error", check.relative_error);
    json.Field("relative_error_limit", check.limit);
    json.EndObject();
  }
  json.EndArray();
  json.Field("steps_that_differ", report.steps_that_differ);
  json.Field("result", report.passes() ? "PASS" : "FAIL");
  json.EndObject();
  return json.ToString();
}

}  // namespace perigee
