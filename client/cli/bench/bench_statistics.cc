#include "client/cli/bench/bench_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr double kNsPerUs = 1000;

double QuantileUs(const std::vector<int64_t>& sorted_ns, double quantile) {
  const double position = quantile * static_cast<double>(sorted_ns.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted_ns.size() - 1);
  const double part = position - static_cast<double>(below);
  const auto low = static_cast<double>(sorted_ns[below]);
  const auto high = static_cast<double>(sorted_ns[above]);
  return (low + part * (high - low)) / kNsPerUs;
}

double MeanUs(const std::vector<int64_t>& samples_ns) {
  double sum_ns = 0;
  for (const int64_t sample_ns : samples_ns) sum_ns += static_cast<double>(sample_ns);
  return sum_ns / static_cast<double>(samples_ns.size()) / kNsPerUs;
}

// Of a sample: divided by one less than there are.
double DeviationUs(const std::vector<int64_t>& samples_ns, double mean_us) {
  if (samples_ns.size() < 2) return 0;
  double squares = 0;
  for (const int64_t sample_ns : samples_ns) {
    const double off_us = static_cast<double>(sample_ns) / kNsPerUs - mean_us;
    squares += off_us * off_us;
  }
  return std::sqrt(squares / static_cast<double>(samples_ns.size() - 1));
}

}  // namespace

std::vector<int64_t> SlowestOfRanks(const std::vector<std::vector<int64_t>>& ranks_ns) {
  if (ranks_ns.empty()) return {};
  std::vector<int64_t> slowest = ranks_ns[0];
  for (const std::vector<int64_t>& rank : ranks_ns) {
    PERIGEE_CHECK(rank.size() == slowest.size());
    for (size_t i = 0; i < rank.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
  }
  return slowest;
}

Spread SpreadOf(std::vector<int64_t> samples_ns) {
  if (samples_ns.empty()) return Spread();
  std::sort(samples_ns.begin(), samples_ns.end());
  const double mean_us = MeanUs(samples_ns);
  return Spread{.samples = static_cast<int64_t>(samples_ns.size()),
                .median_us = QuantileUs(samples_ns, 0.5),
                .p25_us = QuantileUs(samples_ns, 0.25),
                .p75_us = QuantileUs(samples_ns, 0.75),
                .min_us = QuantileUs(samples_ns, 0),
                .max_us = QuantileUs(samples_ns, 1),
                .mean_us = mean_us,
                .sd_us = DeviationUs(samples_ns, mean_us)};
}

}  // namespace perigee
