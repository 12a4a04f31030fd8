// The command line of `perigee bench`.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_FLAGS_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/cli/bench/bench_result.h"
#include "client/cli/bench/bench_shape.h"
#include "client/cli/cluster/supervisor_options.h"
#include "client/cli/flags.h"

namespace perigee {

// As given.
struct BenchFlags {
  std::string what;
  std::vector<std::string> shapes;
  SupervisorOptions cluster{.ranks = 2};  // of its own
  std::string address;
  std::string calibrate;
  std::string transport = "nvlink";
  std::string trace;
  absl::optional<int32_t> layer;
  absl::optional<double> skew;
  int32_t depth = 256;
  absl::optional<int32_t> seed;
  int32_t sms = 0;
  int32_t local_sms = 0;
  int32_t iterations = 20;
  int32_t warmup = 5;
  int32_t inputs = 3;
  int32_t micro_batches = 9;
  int32_t output_slots = 4;
  bool no_programmatic_launch = false;
  bool high_priority = false;
  bool solo = false;
  bool json = false;
};

void DeclareBenchFlags(FlagSet& flags, BenchFlags& given);

struct BenchRequest {
  BenchOptions options;
  std::vector<BenchShape> shapes;
};
// What they ask for; without --seed a random one is taken. address: of the coordinator to use,
// empty: a cluster of its own. INVALID_ARGUMENT names the flag and what was expected.
absl::StatusOr<BenchRequest> ParseBenchRequest(const FlagSet& flags, const BenchFlags& given,
                                               const std::string& address);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_FLAGS_H_
