#include "kernels/plan/placement.h"

#include "kernels/common/check.h"
#include "kernels/plan/balance.h"
#include "kernels/plan/groups.h"
#include "kernels/plan/split.h"

namespace perigee {
namespace {

// [E] routes of all ranks by expert.
std::vector<int32_t> SumOverRanks(const Geometry& geometry, absl::Span<const int32_t> counts) {
  std::vector<int32_t> sums(geometry.experts, 0);
  for (size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

std::vector<int32_t> LoadOf(const Placement& placement) {
  std::vector<int32_t> load(placement.geometry.ranks, 0);
  for (size_t i = 0; i < placement.alloc.size(); ++i) load[i % load.size()] += placement.alloc[i];
  return load;
}

}  // namespace

Placement Place(const Geometry& geometry, absl::Span<const int32_t> counts) {
  PERIGEE_CHECK(counts.size() == static_cast<size_t>(geometry.ranks) * geometry.experts);
  const std::vector<int32_t> expert_counts = SumOverRanks(geometry, counts);
  Placement placement;
  placement.geometry = geometry;
  placement.transfers = BalanceTransfers(geometry, expert_counts);
  placement.alloc = SplitByExpert(geometry, expert_counts, placement.transfers);
  placement.load = LoadOf(placement);
  ArrangeGroups(placement);
  return placement;
}

}  // namespace perigee
