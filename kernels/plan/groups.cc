#include "kernels/plan/groups.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/common/check.h"

namespace perigee {
namespace {

// Remote experts with rows on the rank, most rows first, ties to the highest id.
std::vector<int32_t> RemoteExperts(const Placement& placement, int32_t rank) {
  std::vector<int32_t> remote;
  const auto rows = [&](int32_t expert) {
    return placement.alloc_at(ExpertId(expert), RankId(rank));
  };
  for (int32_t expert = 0; expert < placement.geometry.experts; ++expert) {
    if (placement.geometry.home_rank(expert) != rank && rows(expert) > 0) remote.push_back(expert);
  }
  std::sort(remote.begin(), remote.end(),
            [&](int32_t a, int32_t b) { return rows(a) != rows(b) ? rows(a) > rows(b) : a > b; });
  return remote;
}

// Step 5. Experts beyond the slots stay in their global group.
void FillSlots(Placement& placement, int32_t rank) {
  const Geometry& geometry = placement.geometry;
  const std::vector<int32_t> remote = RemoteExperts(placement, rank);
  placement.remote_stats[static_cast<size_t>(rank) * 2] = static_cast<int32_t>(remote.size());
  int32_t* group_of = &placement.group_of[static_cast<size_t>(rank) * geometry.experts];
  for (int32_t expert = 0; expert < geometry.experts; ++expert) {
    if (placement.alloc_at(ExpertId(expert), RankId(rank)) > 0) group_of[expert] = expert;
  }
  const size_t taken = std::min<size_t>(remote.size(), geometry.slots);
  for (size_t slot = 0; slot < taken; ++slot) {
    const int32_t expert = remote[slot];
    placement.experts_to_copy[static_cast<size_t>(rank) * geometry.slots + slot] = expert;
    group_of[expert] = geometry.experts + static_cast<int32_t>(slot);
    ++placement.remote_stats[static_cast<size_t>(geometry.home_rank(expert)) * 2 + 1];
  }
}

// Step 6.
void PlaceGroups(Placement& placement, int32_t rank) {
  const Geometry& geometry = placement.geometry;
  const size_t experts = geometry.experts;
  const int32_t padding = geometry.token_padding;
  std::vector<int32_t> expert_of(geometry.groups(), -1);
  for (size_t expert = 0; expert < experts; ++expert) {
    const int32_t group = placement.group_of[rank * experts + expert];
    if (group >= 0) expert_of[group] = static_cast<int32_t>(expert);
  }
  int64_t end = 0;
  for (size_t group = 0; group < expert_of.size(); ++group) {
    const size_t at = static_cast<size_t>(rank) * expert_of.size() + group;
    if (expert_of[group] >= 0) {
      const int32_t rows = placement.alloc_at(ExpertId(expert_of[group]), RankId(rank));
      const int32_t blank = (padding - rows % padding) % padding;
      placement.group_start[rank * experts + expert_of[group]] = static_cast<int32_t>(end);
      if (blank > 0) {
        placement.zero_fill_ranges[at * 2] = static_cast<int32_t>(end + rows);
        placement.zero_fill_ranges[at * 2 + 1] = blank;
      }
      end += int64_t{rows} + blank;
    }
    placement.cu_seqlens[at] = static_cast<int32_t>(end);
  }
  PERIGEE_CHECK(end <= geometry.logical_rows());
}

}  // namespace

void ArrangeGroups(Placement& placement) {
  const Geometry& geometry = placement.geometry;
  const size_t ranks = geometry.ranks;
  const size_t groups = geometry.groups();
  placement.experts_to_copy.assign(ranks * geometry.slots, -1);
  placement.group_of.assign(ranks * geometry.experts, -1);
  placement.remote_stats.assign(ranks * 2, 0);
  placement.cu_seqlens.assign(ranks * groups, 0);
  placement.zero_fill_ranges.assign(ranks * groups * 2, 0);
  placement.group_start.assign(ranks * geometry.experts, 0);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    FillSlots(placement, rank);
    PlaceGroups(placement, rank);
  }
}

}  // namespace perigee
