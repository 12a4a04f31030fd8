#include "kernels/plan/summary.h"

#include <algorithm>
#include <numeric>

namespace perigee {

std::vector<int32_t> ExpertLoads(const Placement& placement) {
  const int32_t ranks = placement.geometry.ranks;
  std::vector<int32_t> loads(placement.geometry.experts, 0);
  for (size_t i = 0; i < placement.alloc.size(); ++i) loads[i / ranks] += placement.alloc[i];
  return loads;
}

std::vector<int32_t> HomeLoads(const Placement& placement) {
  const std::vector<int32_t> experts = ExpertLoads(placement);
  std::vector<int32_t> loads(placement.geometry.ranks, 0);
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    loads[placement.geometry.home_rank(static_cast<int32_t>(expert))] += experts[expert];
  }
  return loads;
}

std::vector<int64_t> HomeRows(const Placement& placement) {
  const std::vector<int32_t> experts = ExpertLoads(placement);
  const int64_t padding = placement.geometry.token_padding;
  std::vector<int64_t> rows(placement.geometry.ranks, 0);
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    rows[placement.geometry.home_rank(static_cast<int32_t>(expert))] +=
        (experts[expert] + padding - 1) / padding * padding;
  }
  return rows;
}

double HottestOverMean(absl::Span<const int32_t> loads) {
  const int64_t total = std::accumulate(loads.begin(), loads.end(), int64_t{0});
  if (total == 0) return 1.0;
  return static_cast<double>(*std::max_element(loads.begin(), loads.end())) *
         static_cast<double>(loads.size()) / static_cast<double>(total);
}

}  // namespace perigee
