// What `perigee bench` has measured of paths, as cells of a path table (client/lib/path_table.h),
// and which of them a selector would take.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_CHOICE_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_CHOICE_H_

#include <string>

#include "absl/types/optional.h"
#include "client/cli/bench/bench_result.h"
#include "client/lib/path_selector.h"
#include "client/lib/path_table.h"

namespace perigee {

// What the group of these options runs on; `device` of rank 0.
PathMachine MachineOf(const BenchOptions& options, const std::string& device);
PathShape PathShapeOf(const BenchShape& shape, int32_t ranks);

// Means of what ran back to back, as in a model. None where no path was measured.
absl::optional<PathCell> CellOf(const BenchResult& result, const ShapeResult& shape);

// By this cell alone, for a framework that can do everything.
PathChoice ChoiceOf(const PathCell& cell);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_CHOICE_H_
