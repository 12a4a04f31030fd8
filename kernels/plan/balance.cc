#include "kernels/plan/balance.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace perigee {
namespace {

// [R] routes to a rank's home experts, less its target.
std::vector<int32_t> Surpluses(const Geometry& geometry, absl::Span<const int32_t> expert_counts) {
  const int32_t total = std::accumulate(expert_counts.begin(), expert_counts.end(), 0);
  std::vector<int32_t> surplus = TargetLoads(geometry.ranks, total);
  for (int32_t& load : surplus) load = -load;
  for (int32_t expert = 0; expert < geometry.experts; ++expert) {
    surplus[geometry.home_rank(expert)] += expert_counts[expert];
  }
  return surplus;
}

}  // namespace

std::vector<int32_t> TargetLoads(int32_t ranks, int32_t total_routes) {
  std::vector<int32_t> loads(ranks, total_routes / ranks);
  for (int32_t rank = 0; rank < total_routes % ranks; ++rank) ++loads[rank];
  return loads;
}

std::vector<int32_t> BalanceTransfers(const Geometry& geometry,
                                      absl::Span<const int32_t> expert_counts) {
  std::vector<int32_t> surplus = Surpluses(geometry, expert_counts);
  std::vector<int32_t> transfers(static_cast<size_t>(geometry.ranks) * geometry.ranks, 0);
  while (true) {
    const auto fullest = std::max_element(surplus.begin(), surplus.end());
    if (*fullest <= 0) return transfers;
    const auto emptiest = std::min_element(surplus.begin(), surplus.end());
    const size_t donor = fullest - surplus.begin();
    const size_t receiver = emptiest - surplus.begin();
    transfers[donor * geometry.ranks + receiver] = -*emptiest;
    *fullest += *emptiest;
    *emptiest = 0;
  }
}

}  // namespace perigee
