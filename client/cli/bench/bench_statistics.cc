#include "client/cli/bench/bench_statistics.h"

#include <algorithm>
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
  return Spread{.samples = static_cast<int64_t>(samples_ns.size()),
                .median_us = QuantileUs(samples_ns, 0.5),
                .p25_us = QuantileUs(samples_ns, 0.25),
                .p75_us = QuantileUs(samples_ns, 0.75),
                .min_us = QuantileUs(samples_ns, 0),
                .max_us = QuantileUs(samples_ns, 1)};
}

}  // namespace perigee
