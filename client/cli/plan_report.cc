#include "client/cli/plan_report.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"
#include "kernels/common/bfloat16.h"
#include "kernels/plan/summary.h"

namespace perigee {
namespace {

int64_t RowBytes(const PlanReport& report) {
  return static_cast<int64_t>(report.hidden) * static_cast<int64_t>(sizeof(BFloat16));
}

template <typename T>
int64_t Sum(const std::vector<T>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

template <typename T>
int64_t Max(const std::vector<T>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::vector<int64_t> Column(const std::vector<RowCounts>& rows, int64_t RowCounts::*column) {
  std::vector<int64_t> values;
  values.reserve(rows.size());
  for (const RowCounts& rank : rows) values.push_back(rank.*column);
  return values;
}

// The largest part of one expert on one rank, over the mean load of an expert.
double LargestGroupOverMean(const Placement& placement) {
  const int64_t total = Sum(placement.load);
  if (total == 0) return 1.0;
  return static_cast<double>(Max(placement.alloc)) * placement.geometry.experts /
         static_cast<double>(total);
}

// Rows of memory, what they take and how that compares with the balanced capacity.
void AddCapacity(TextTable& table, const PlanReport& report, const char* what, int64_t rows) {
  table.AddRow({what, FormatCount(rows), FormatBytes(rows * RowBytes(report)),
                report.capacity_rows == 0
                    ? ""
                    : absl::StrFormat("%.2fx", static_cast<double>(rows) /
                                                   static_cast<double>(report.capacity_rows))});
}

void WriteTraffic(JsonWriter& json, absl::string_view operation,
                  const std::vector<Traffic>& ranks) {
  const Traffic total = Total(ranks);
  json.Key(operation);
  json.BeginObject();
  json.Field("read_bytes", total.read_bytes);
  json.Field("written_bytes", total.written_bytes);
  json.Field("link_bytes", total.sent_bytes);
  json.EndObject();
}

template <typename Function>
std::vector<Traffic> ByRank(const PlanReport& report, const Function& traffic) {
  const ElementCosts costs{RowBytes(report), true, report.geometry.topk};
  std::vector<Traffic> ranks;
  for (const RowCounts& rows : report.rows) ranks.push_back(traffic(rows, costs));
  return ranks;
}

void WriteGeometry(JsonWriter& json, const Geometry& geometry) {
  json.Field("ranks", geometry.ranks);
  json.Field("experts", geometry.experts);
  json.Field("tokens", geometry.tokens);
  json.Field("topk", geometry.topk);
  json.Field("slots", geometry.slots);
  json.Field("token_padding", geometry.token_padding);
}

void WriteSkew(JsonWriter& json, absl::string_view key, const Skew& value) {
  json.Key(key);
  json.BeginObject();
  json.Field("before", value.before);
  json.Field("after", value.after);
  json.EndObject();
}

void WriteCapacity(JsonWriter& json, const PlanReport& report) {
  const auto write = [&](absl::string_view key, int64_t scale) {
    json.Key(key);
    json.BeginObject();
    json.Field("balanced", report.capacity_rows * scale);
    json.Field("unbalanced_hottest", report.unbalanced_rows * scale);
    json.Field("unbalanced_worst_case", report.unbalanced_worst_rows * scale);
    json.EndObject();
  };
  write("rows_per_rank", 1);
  write("bytes_per_rank", RowBytes(report));
}

}  // namespace

PlanReport MakePlanReport(const GroupPlan& plan, int32_t hidden) {
  const Placement& placement = plan.placement;
  const Geometry& geometry = plan.geometry();
  PlanReport report;
  report.geometry = geometry;
  report.hidden = hidden;
  report.routes = Sum(placement.load);
  report.home_load = HomeLoads(placement);
  report.load = placement.load;
  report.rank = {HottestOverMean(report.home_load), HottestOverMean(report.load)};
  report.expert = {HottestOverMean(ExpertLoads(placement)), LargestGroupOverMean(placement)};
  for (size_t rank = 0; rank < report.load.size(); ++rank) {
    report.replicas.push_back(placement.remote_stats[2 * rank]);
    report.replicas_in_slots += placement.remote_stats[2 * rank + 1];
  }
  report.rows = CountRows(plan);
  report.capacity_rows = geometry.logical_rows();
  report.unbalanced_rows = Max(HomeRows(placement));
  report.unbalanced_worst_rows = int64_t{geometry.ranks} * geometry.routes() +
                                 int64_t{geometry.token_padding - 1} * geometry.experts_per_rank();
  return report;
}

std::string PlanReportText(const PlanReport& report) {
  const Geometry& geometry = report.geometry;
  std::string text = absl::StrFormat(
      "%d ranks of %s tokens, top %d of %d experts, token padding %d, %d slots a rank\n\n",
      geometry.ranks, FormatCount(geometry.tokens), geometry.topk, geometry.experts,
      geometry.token_padding, geometry.slots);

  TextTable skew({"load over mean", "before", "after"});
  skew.AddRow({"hottest rank", absl::StrFormat("%.2f", report.rank.before),
               absl::StrFormat("%.2f", report.rank.after)});
  skew.AddRow({"hottest expert", absl::StrFormat("%.2f", report.expert.before),
               absl::StrFormat("%.2f", report.expert.after)});
  absl::StrAppend(&text, skew.ToString(), "\n");

  const std::vector<int64_t> sent = Column(report.rows, &RowCounts::primaries_sent);
  TextTable ranks({"rank", "home load", "load", "replicas", "rows sent", "rows received"});
  for (size_t rank = 0; rank < report.rows.size(); ++rank) {
    ranks.AddRow({absl::StrCat(rank), FormatCount(report.home_load[rank]),
                  FormatCount(report.load[rank]), absl::StrCat(report.replicas[rank]),
                  FormatCount(report.rows[rank].primaries_sent),
                  FormatCount(report.rows[rank].primaries_received)});
  }
  ranks.AddRow({"all", FormatCount(Sum(report.home_load)), FormatCount(Sum(report.load)),
                absl::StrCat(Sum(report.replicas)), FormatCount(Sum(sent)),
                FormatCount(Sum(Column(report.rows, &RowCounts::primaries_received)))});
  absl::StrAppend(&text, ranks.ToString(), "\n");

  TextTable capacity({absl::StrCat("rows a rank must hold, hidden ", report.hidden), "rows",
                      "bytes", "of balanced"});
  AddCapacity(capacity, report, "balanced, whatever the routes", report.capacity_rows);
  AddCapacity(capacity, report, "not balanced, these routes", report.unbalanced_rows);
  AddCapacity(capacity, report, "not balanced, worst case", report.unbalanced_worst_rows);
  absl::StrAppend(&text, capacity.ToString());
  absl::StrAppendFormat(&text,
                        "\n%d replicas, at most %d on a rank, %d of them in slots; "
                        "planned in %.2f ms\nwritten to %s\n",
                        Sum(report.replicas), Max(report.replicas), report.replicas_in_slots,
                        report.planning_ms, report.output);
  return text;
}

std::string PlanReportJson(const PlanReport& report) {
  JsonWriter json;
  json.BeginObject();
  WriteGeometry(json, report.geometry);
  json.Field("hidden", report.hidden);
  json.Field("routes", report.routes);
  json.ArrayField("home_load", report.home_load);
  json.ArrayField("load", report.load);
  WriteSkew(json, "hottest_rank_over_mean", report.rank);
  WriteSkew(json, "hottest_expert_over_mean", report.expert);
  json.ArrayField("replicas", report.replicas);
  json.Field("replicas_total", Sum(report.replicas));
  json.Field("replicas_max", Max(report.replicas));
  json.Field("replicas_in_slots", report.replicas_in_slots);
  const std::vector<int64_t> sent = Column(report.rows, &RowCounts::primaries_sent);
  json.ArrayField("rows_sent", sent);
  json.ArrayField("rows_received", Column(report.rows, &RowCounts::primaries_received));
  json.Field("rows_over_link", Sum(sent));
  WriteCapacity(json, report);
  json.Key("traffic");
  json.BeginObject();
  WriteTraffic(json, "dispatch", ByRank(report, DispatchTraffic));
  WriteTraffic(json, "local_sum", ByRank(report, LocalSumTraffic));
  WriteTraffic(json, "combine", ByRank(report, CombineTraffic));
  json.EndObject();
  json.Field("planning_ms", report.planning_ms);
  json.Field("output", report.output);
  json.EndObject();
  return json.ToString();
}

}  // namespace perigee
