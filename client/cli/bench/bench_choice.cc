#include "client/cli/bench/bench_choice.h"

#include "absl/strings/str_cat.h"
#include "client/cli/bench/path_programs.h"

namespace perigee {
namespace {

std::string RoutesInWords(const RouteSource& routes) {
  if (routes.trace.empty()) {
    return routes.skew ? absl::StrCat("skew ", *routes.skew) : std::string("uniform");
  }
  const std::string file = routes.trace.substr(routes.trace.rfind('/') + 1);
  return absl::StrCat("trace ", file, routes.layer ? absl::StrCat(", layer ", *routes.layer) : "");
}

absl::optional<double> MeanOf(const ShapeResult& shape, const std::string& operation) {
  for (const OperationResult& measured : shape.operations) {
    if (measured.name == absl::StrCat(operation, "_back_to_back")) return measured.times.mean_us;
  }
  return absl::nullopt;
}

}  // namespace

PathMachine MachineOf(const BenchOptions& options, const std::string& device) {
  const bool shared = options.memory == RankMemory::kOneForAll;
  return {device,      shared ? 1 : options.ranks, options.backend, options.transport,
          options.sms, options.local_sms};
}

PathShape PathShapeOf(const BenchShape& shape, int32_t ranks) {
  return {shape.tokens,        shape.hidden,          shape.topk, shape.experts, ranks,
          shape.token_padding, shape.slots_of(ranks), 0};
}

absl::optional<PathCell> CellOf(const BenchResult& result, const ShapeResult& shape) {
  PathCell cell;
  cell.machine = MachineOf(result.options, result.device);
  cell.shape = PathShapeOf(shape.shape, result.options.ranks);
  cell.routes = RoutesInWords(result.options.routes);
  cell.home_imbalance = shape.home_imbalance;
  PathCosts& costs = cell.costs;
  costs.dispatch_us = MeanOf(shape, "dispatch");
  costs.pull_us = MeanOf(shape, "pull");
  costs.produce_dispatch_us = MeanOf(shape, PathFigure(ProducerPath::kOrdinary));
  costs.direct_us = MeanOf(shape, PathFigure(ProducerPath::kDirect));
  costs.direct_overlapped_us = MeanOf(shape, PathFigure(ProducerPath::kDirectOverlapped));
  if (costs == PathCosts()) return absl::nullopt;
  return cell;
}

PathChoice ChoiceOf(const PathCell& cell) {
  PathTable table;
  table.Put(cell);
  PathQuery query{cell.machine, cell.shape, cell.home_imbalance};
  query.producer_writes_in_place = cell.costs.direct_us.has_value();
  query.prepares_beside = cell.costs.direct_overlapped_us.has_value();
  query.consumer_reads_peers = cell.costs.pull_us.has_value();
  return ChoosePath(table, query);
}

}  // namespace perigee
