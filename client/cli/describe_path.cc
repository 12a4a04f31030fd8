#include "client/cli/describe_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "client/cli/bench/bench_choice.h"
#include "client/cli/bench/bench_shape.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "client/lib/path_selector.h"
#include "client/lib/path_table.h"

namespace perigee {
namespace {

constexpr const char* kName = "describe path";

struct Settings {
  std::string table;
  std::string shape;
  int32_t ranks = 2;
  int32_t ring_slots = 0;
  absl::optional<double> imbalance;
  bool no_direct = false;
  bool no_overlap = false;
  bool no_pull = false;
  bool json = false;
};

void Declare(Settings& settings, FlagSet& flags) {
  flags.Required("path-table", "FILE", "costs, as kept by 'perigee bench --calibrate'",
                 &settings.table);
  flags.Required("shape", "S4096,H7168,K8,E256", "of the buffer, as of 'perigee bench'",
                 &settings.shape);
  flags.Optional("ranks", "R", "ranks of the group", &settings.ranks, 1, 128);
  flags.Optional("ring-slots", "D",
                 "depth of the buffer's ring of dispatch outputs; 0: it has none",
                 &settings.ring_slots, 0);
  flags.Optional("imbalance", "X",
                 "routes to the experts of the most loaded rank over the mean; without it 1",
                 &settings.imbalance, 1, 128);
  flags.Boolean("no-direct", "the producer cannot write in place", &settings.no_direct);
  flags.Boolean("no-overlap", "nothing can be prepared beside the producer", &settings.no_overlap);
  flags.Boolean("no-pull", "the consumer cannot read peers", &settings.no_pull);
  flags.Boolean("json", "print the result as JSON (keys: docs/cli.md)", &settings.json);
}

// What a selector says on one machine.
struct Answer {
  PathMachine machine;
  PathChoice choice;
};

// On each machine of the table, in its order.
std::vector<Answer> Ask(const PathTable& table, PathQuery query) {
  std::vector<Answer> answers;
  for (const PathCell& cell : table.cells()) {
    const auto same = [&](const Answer& known) { return known.machine == cell.machine; };
    if (std::any_of(answers.begin(), answers.end(), same)) continue;
    query.machine = cell.machine;
    answers.push_back({cell.machine, ChoosePath(table, query)});
  }
  return answers;
}

std::string Text(const std::vector<Answer>& answers, const PathQuery& query) {
  std::string text =
      absl::StrFormat("%s, home imbalance %.3g\n", Describe(query.shape), query.home_imbalance);
  if (answers.empty()) absl::StrAppend(&text, "ordinary: the table has no cells\n");
  for (const Answer& answer : answers) {
    absl::StrAppend(&text, "\nmachine:  ", Describe(answer.machine),
                    "\npath:     ", PathName(answer.choice.path),
                    "\nbecause:  ", answer.choice.reason, "\n");
  }
  return text;
}

std::string Json(const std::vector<Answer>& answers, const PathQuery& query) {
  JsonWriter json;
  json.BeginObject();
  json.Field("shape", Describe(query.shape));
  json.Field("home_imbalance", query.home_imbalance);
  json.Key("machines");
  json.BeginArray();
  for (const Answer& answer : answers) {
    json.BeginObject();
    json.Field("machine", Describe(answer.machine));
    json.Field("path", PathName(answer.choice.path));
    json.Field("reason", answer.choice.reason);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

}  // namespace

int DescribePath(const std::vector<std::string>& args) {
  Settings settings;
  FlagSet flags(kName, "Says which path rows take by a table of measured costs, and why.");
  Declare(settings, flags);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const absl::StatusOr<BenchShape> shape = ParseBenchShape(settings.shape);
  if (!shape.ok()) {
    return flags.WrongUse(
        absl::StrCat("--shape ", settings.shape.substr(0, 80), ": ", shape.status().message()));
  }
  const absl::StatusOr<PathTable> table = PathTable::Read(settings.table);
  if (!table.ok()) return PrintFailure(kName, table.status());
  PathQuery query;
  query.shape = PathShapeOf(*shape, settings.ranks);
  query.shape.ring_slots = settings.ring_slots;
  query.home_imbalance = settings.imbalance.value_or(1);
  query.producer_writes_in_place = !settings.no_direct;
  query.prepares_beside = !settings.no_overlap;
  query.consumer_reads_peers = !settings.no_pull;
  const std::vector<Answer> answers = Ask(*table, query);
  return PrintResult(settings.json ? Json(answers, query) : Text(answers, query));
}

}  // namespace perigee
