// From the times of each rank to the figures that `perigee bench` prints.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_STATISTICS_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_STATISTICS_H_

#include <cstdint>
#include <vector>

namespace perigee {

// ranks: [R] of [samples], as many of each (checked). The longest time of each sample: an operation
// has ended when its slowest rank has.
std::vector<int64_t> SlowestOfRanks(const std::vector<std::vector<int64_t>>& ranks_ns);

struct Spread {
  int64_t samples = 0;
  double median_us = 0;
  double p25_us = 0;  // quartiles; between two samples: linearly
  double p75_us = 0;
  double min_us = 0;
  double max_us = 0;
  double mean_us = 0;
  double sd_us = 0;  // standard deviation of the samples; 0 for a single one
};
// Of no samples: all 0.
Spread SpreadOf(std::vector<int64_t> samples_ns);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_STATISTICS_H_
