#include "client/cli/bench/bench_routes.h"

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_data.h"
#include "client/cli/plan_input.h"

namespace perigee {
namespace {

constexpr uint64_t kRoutesTensor = 1000;

absl::StatusOr<std::vector<int32_t>> TraceRoutes(const RouteSource& source, const BenchShape& shape,
                                                 int32_t ranks) {
  RouteSelection selection;
  selection.layer = source.layer;
  selection.ranks = ranks;
  selection.tokens = shape.tokens;
  const absl::StatusOr<RecordedRoutes> routes = ReadRoutes(source.trace, selection);
  if (!routes.ok()) return routes.status();
  if (routes->tokens != shape.tokens || routes->topk != shape.topk) {
    return absl::FailedPreconditionError(absl::StrCat(
        source.trace, " has ", routes->tokens, " tokens of ", routes->topk, " routes for each of ",
        ranks, " ranks, and --shape is ", FormatBenchShape(shape)));
  }
  absl::StatusOr<std::vector<int32_t>> narrow = NarrowRoutes(*routes, shape.experts);
  if (!narrow.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(source.trace, ": ", narrow.status().message()));
  }
  return narrow;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> BenchRouteInputs(const RouteSource& source,
                                                                   const BenchShape& shape,
                                                                   int32_t ranks, int32_t inputs) {
  std::vector<std::vector<int32_t>> routes;
  if (!source.trace.empty()) {
    absl::StatusOr<std::vector<int32_t>> recorded = TraceRoutes(source, shape, ranks);
    if (!recorded.ok()) return recorded.status();
    routes.assign(inputs, *recorded);
    return routes;
  }
  for (int32_t input = 0; input < inputs; ++input) {
    const uint64_t seed = DeriveSeed(source.seed, kRoutesTensor + input, 0);
    const Geometry geometry = GeometryOf(shape, ranks);
    if (source.all_remote) {
      routes.push_back(RemoteRoutes(seed, geometry));
      continue;
    }
    routes.push_back(source.skew ? SkewedRoutes(seed, geometry, *source.skew)
                                 : RandomRoutes(seed, geometry));
  }
  return routes;
}

}  // namespace perigee
