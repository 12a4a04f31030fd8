// Where the tokens of `perigee bench` go: at random, or as a trace file says.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_ROUTES_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_ROUTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/cli/bench/bench_shape.h"

namespace perigee {

struct RouteSource {
  std::string trace;              // as `perigee plan --input` takes it; empty: random
  absl::optional<int32_t> layer;  // of the trace
  uint64_t seed = 0;              // of random routes
  // Of random routes: experts are not equally likely (SkewedRoutes).
  absl::optional<double> skew = absl::nullopt;
  bool all_remote = false;  // RemoteRoutes instead; K is 1, and there are several ranks
};

// [inputs] of [R, S, K], -1 = masked. Random routes differ from input to input; those of a trace
// are the same. FAILED_PRECONDITION: the trace does not fit shape and ranks (wrong use); else what
// is wrong with the file, or an expert of it that the shape does not have.
absl::StatusOr<std::vector<std::vector<int32_t>>> BenchRouteInputs(const RouteSource& source,
                                                                   const BenchShape& shape,
                                                                   int32_t ranks, int32_t inputs);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_ROUTES_H_
