// What `perigee bench` has measured: what its report prints.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_RESULT_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "client/cli/bench/bench_bytes.h"
#include "client/cli/bench/bench_routes.h"
#include "client/cli/bench/bench_shape.h"
#include "client/cli/bench/bench_statistics.h"

namespace perigee {

// What to run, and how.
struct BenchOptions {
  std::string what = "all";  // as the command line has it
  int32_t depth = 256;       // C of a producer's product
  int32_t ranks = 2;         // of the group
  std::string backend = "host";
  std::string transport = "nvlink";
  RankMemory memory = RankMemory::kOneForAll;
  int32_t sms = 0;
  int32_t local_sms = 0;
  bool programmatic_launch = true;
  bool high_priority_stream = false;
  int32_t iterations = 20;
  int32_t warmup = 5;
  int32_t inputs = 3;
  uint64_t seed = 0;
  RouteSource routes;
  // Of rings.
  int32_t micro_batches = 9;
  int32_t output_slots = 4;

  // Whole paths of rows, of which no bytes are counted and nothing is copied.
  bool measures_paths() const { return what == "direct" || what == "pull"; }
  // Of wire, whose shape and routes are what is special, dispatches are measured as ever.
  bool wants(const std::string& operation) const {
    return what == operation || what == "all" || (what == "wire" && operation == "dispatch");
  }
};

struct OperationResult {
  std::string name;
  Spread times;                      // of the slowest rank
  absl::optional<MovedBytes> bytes;  // none: the operation is not bound by moving bytes
  absl::optional<Floor> floor;       // where bytes are known and the copy was measured
};

// One way to hold the outputs of dispatches that are pending.
struct RingResult {
  std::string name;
  int32_t pending = 0;  // dispatched ahead of the experts
  int32_t dispatch_output_slots = 0;
  int32_t expert_output_slots = 0;
  int64_t output_bytes = 0;  // that rank 0 allocates for it besides a buffer without slots
  Spread times = {};         // of a micro-batch, on the slowest rank
};

struct ShapeResult {
  BenchShape shape;
  CopyTimes copy;
  double home_imbalance = 1;  // of the routes, mean of the inputs (HomeImbalanceOf)
  std::vector<OperationResult> operations;
  std::vector<RingResult> rings;
  // Combined tokens compared with a slow computation of the same, and elements that differed.
  int64_t checked_tokens = 0;
  int64_t mismatched_elements = 0;
};

struct BenchResult {
  BenchOptions options;
  std::string device;  // of rank 0
  bool solo = false;
  std::vector<ShapeResult> shapes;

  bool passes() const {
    for (const ShapeResult& shape : shapes) {
      if (shape.mismatched_elements > 0) return false;
    }
    return true;
  }
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_RESULT_H_
