#include "kernels/host/host_plan.h"

#include <utility>

#include "absl/types/span.h"

namespace perigee {
namespace {

std::vector<int32_t> ToVector(absl::Span<const int32_t> values) {
  return std::vector<int32_t>(values.begin(), values.end());
}

std::vector<int32_t> RemoteStats(const Placement& placement, RankId rank) {
  return ToVector(absl::MakeConstSpan(placement.remote_stats).subspan(2 * rank.value, 2));
}

std::vector<int32_t> HomeLoad(const Placement& placement) {
  const Geometry& geometry = placement.geometry;
  std::vector<int32_t> load(geometry.ranks);
  for (int32_t expert = 0; expert < geometry.experts; ++expert) {
    for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
      load[geometry.home_rank(expert)] += placement.alloc_at(ExpertId(expert), RankId(rank));
    }
  }
  return load;
}

}  // namespace

HostPlan::HostPlan(ObjectTag tag, RankId rank, int32_t token_count, const Placement& placement,
                   std::vector<int32_t> dst, DuplicateGroups duplicates)
    : tag_(tag),
      rank_(rank),
      token_count_(token_count),
      slots_(placement.geometry.slots),
      dst_(std::move(dst)),
      cu_seqlens_(ToVector(placement.cu_seqlens_of(rank))),
      zero_fill_ranges_(ToVector(placement.zero_fill_of(rank))),
      experts_to_copy_(placement.experts_to_copy),
      load_(placement.load),
      home_load_(HomeLoad(placement)),
      remote_stats_(RemoteStats(placement, rank)),
      duplicates_(std::move(duplicates)) {}

GroupRows HostPlan::group_rows(int32_t group) const {
  GroupRows rows;
  rows.begin = group == 0 ? 0 : cu_seqlens_[group - 1];
  rows.end = cu_seqlens_[group];
  rows.count = rows.end - rows.begin - zero_fill_ranges_[2 * group + 1];
  return rows;
}

PlanTensors HostPlan::Tensors() const {
  PlanTensors tensors;
  tensors.dst = dst_;
  tensors.cu_seqlens = cu_seqlens_;
  tensors.zero_fill_ranges = zero_fill_ranges_;
  tensors.experts_to_copy = experts_to_copy_;
  tensors.load = load_;
  tensors.home_load = home_load_;
  tensors.remote_stats = remote_stats_;
  for (const DuplicateGroup& group : duplicates_.groups) {
    tensors.duplicate_groups.insert(tensors.duplicate_groups.end(),
                                    {group.primary_row, group.start, group.count});
  }
  tensors.duplicate_rows = duplicates_.rows;
  return tensors;
}

}  // namespace perigee
