#include "client/cli/run/layer_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"
#include "client/cli/run/phase_times.h"

namespace perigee {
namespace {

std::string Milliseconds(double ns) { return absl::StrFormat("%.3f ms", ns / 1e6); }

std::string RankTable(const RunLayerReport& report) {
  TextTable table({"RANK", "WORKER", "TOKENS", "HOME LOAD", "BALANCED LOAD", "REPLICAS",
                   "ROWS SENT", "ROWS RECEIVED"});
  for (size_t rank = 0; rank < report.plans.size(); ++rank) {
    const v1::PlanSummary& plan = report.plans[rank];
    const int index = static_cast<int>(rank);
    table.AddRow({absl::StrCat(rank),
                  index < report.group.members_size() ? report.group.members(index).worker() : "",
                  FormatCount(plan.token_count()), FormatCount(plan.home_load()),
                  FormatCount(plan.balanced_load()), FormatCount(plan.replicas()),
                  FormatCount(plan.rows_sent()), FormatCount(plan.rows_received())});
  }
  return table.ToString();
}

// The spread of the loads with and without balancing.
std::string LoadLine(const std::vector<v1::PlanSummary>& plans) {
  int64_t home_max = 0, home_sum = 0, low = INT64_MAX, high = 0;
  for (const v1::PlanSummary& plan : plans) {
    home_max = std::max(home_max, plan.home_load());
    home_sum += plan.home_load();
    low = std::min(low, plan.balanced_load());
    high = std::max(high, plan.balanced_load());
  }
  if (plans.empty() || home_sum == 0) return "No rank has rows to compute.\n";
  const double skew = static_cast<double>(home_max) * static_cast<double>(plans.size()) /
                      static_cast<double>(home_sum);
  const std::string balanced =
      low == high ? absl::StrCat("equal on every rank, ", FormatCount(low), " rows")
                  : absl::StrCat("from ", FormatCount(low), " to ", FormatCount(high), " rows");
  return absl::StrFormat(
      "Balanced load: %s; without balancing the busiest rank has %.2f times the "
      "mean.\n",
      balanced, skew);
}

std::string PhaseTable(const RunLayerReport& report) {
  TextTable table({"PHASE", "SLOWEST RANK", "ITS MEAN", "MEAN", "SHORTEST", "LONGEST"});
  for (const PhaseTimes& phase : SummarizePhases(report.timings)) {
    table.AddRow({phase.operation, absl::StrCat(phase.slowest_rank),
                  Milliseconds(phase.slowest_mean_ns), Milliseconds(phase.mean_ns),
                  Milliseconds(static_cast<double>(phase.min_ns)),
                  Milliseconds(static_cast<double>(phase.max_ns))});
  }
  return absl::StrCat(table.ToString(),
                      "Times of one operation on one rank, waits for other ranks included.\n");
}

std::string Verdict(const absl::optional<Comparison>& comparison) {
  if (!comparison) return "The file has no expected_output: nothing was compared.\n";
  std::string text = absl::StrFormat(
      "Largest absolute error %.3e, relative error %.3e (norm of difference over norm of "
      "expected_output; limit %.0e).\n",
      comparison->largest_absolute_error, comparison->relative_error, kRelativeErrorLimit);
  if (comparison->non_finite_mismatches > 0) {
    absl::StrAppend(&text, FormatCount(comparison->non_finite_mismatches),
                    " elements are not finite where expected_output is, or differ in how.\n");
  }
  return absl::StrCat(text, comparison->passes() ? "PASS\n" : "FAIL\n");
}

void WriteRanks(const RunLayerReport& report, JsonWriter& json) {
  json.Key("per_rank");
  json.BeginArray();
  for (size_t rank = 0; rank < report.plans.size(); ++rank) {
    const v1::PlanSummary& plan = report.plans[rank];
    const int index = static_cast<int>(rank);
    json.BeginObject();
    json.Field("rank", index);
    json.Field("worker",
               index < report.group.members_size() ? report.group.members(index).worker() : "");
    json.Field("tokens", plan.token_count());
    json.Field("home_load", plan.home_load());
    json.Field("balanced_load", plan.balanced_load());
    json.Field("replicas", plan.replicas());
    json.Field("rows_sent", plan.rows_sent());
    json.Field("rows_received", plan.rows_received());
    json.Field("duplicate_rows", plan.duplicate_rows());
    json.Key("phases");
    json.BeginArray();
    for (const v1::OperationTiming& timing : report.timings[rank]) {
      json.BeginObject();
      json.Field("operation", timing.operation());
      json.Field("count", timing.count());
      json.Field("mean_ns", MeanTime(timing));
      json.Field("min_ns", timing.min_ns());
      json.Field("max_ns", timing.max_ns());
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
}

void WriteVerdict(const absl::optional<Comparison>& comparison, JsonWriter& json) {
  if (comparison) {
    json.Field("largest_absolute_error", comparison->largest_absolute_error);
    json.Field("relative_error", comparison->relative_error);
    json.Field("relative_error_limit", kRelativeErrorLimit);
    json.Field("non_finite_mismatches", comparison->non_finite_mismatches);
  }
  json.Field("result", !comparison ? "NOT_COMPARED" : comparison->passes() ? "PASS" : "FAIL");
}

}  // namespace

std::string RunLayerText(const RunLayerReport& report) {
  return absl::StrCat(
      FormatCount(report.tokens), " tokens of ", report.hidden, " through ", report.experts,
      " experts of ", report.intermediate, ", top ", report.topk, ", on ",
      report.group.members_size(), " ranks (", report.group.backend(), " backend",
      report.group.transport() == "nccl" ? ", over NCCL" : "", "); ",
      FormatCount(report.iterations), report.iterations == 1 ? " iteration" : " iterations",
      ", generation ", report.group.generation(), "\nRows took path ", PathName(report.path.path),
      ": ", report.path.reason, ".\n\n", RankTable(report), "\n", LoadLine(report.plans), "\n",
      PhaseTable(report), "\n", Verdict(report.comparison));
}

std::string RunLayerJson(const RunLayerReport& report) {
  JsonWriter json;
  json.BeginObject();
  json.Field("input", report.input);
  json.Field("backend", report.group.backend());
  json.Field("transport", report.group.transport());
  json.Field("ranks", report.group.members_size());
  json.Field("tokens", report.tokens);
  json.Field("hidden", report.hidden);
  json.Field("intermediate", report.intermediate);
  json.Field("topk", report.topk);
  json.Field("experts", report.experts);
  json.Field("slots", report.slots);
  json.Field("token_padding", report.token_padding);
  json.Field("iterations", report.iterations);
  json.Field("path", PathName(report.path.path));
  json.Field("path_reason", report.path.reason);
  json.Field("group", report.group.name());
  json.ArrayField("generations", report.generations);
  WriteRanks(report, json);
  WritePhases(report.timings, json);
  WriteVerdict(report.comparison, json);
  json.EndObject();
  return json.ToString();
}

}  // namespace perigee
