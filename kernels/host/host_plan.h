// A plan as the host backend keeps it: one rank's view, in this process's own memory.
#ifndef PERIGEE_KERNELS_HOST_HOST_PLAN_H_
#define PERIGEE_KERNELS_HOST_HOST_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/plan/duplicates.h"
#include "kernels/plan/placement.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {

// Rows of one group in this rank's shard; padding rows follow its `count` rows up to `end`.
struct GroupRows {
  int32_t begin = 0;
  int32_t count = 0;
  int32_t end = 0;
};

class HostPlan final : public PlanHandle {
 public:
  // What all ranks know; dst [S, K] and the duplicates are this rank's.
  HostPlan(ObjectTag tag, RankId rank, int32_t token_count, const Placement& placement,
           std::vector<int32_t> dst, DuplicateGroups duplicates);

  ObjectTag tag() const override { return tag_; }
  RankId rank() const { return rank_; }
  int32_t token_count() const { return token_count_; }
  const std::vector<int32_t>& dst() const { return dst_; }
  const DuplicateGroups& duplicates() const { return duplicates_; }
  const std::vector<int32_t>& zero_fill_ranges() const { return zero_fill_ranges_; }  // [E + B, 2]
  int32_t used_rows() const { return cu_seqlens_.back(); }
  int32_t group_count() const { return static_cast<int32_t>(cu_seqlens_.size()); }
  GroupRows group_rows(int32_t group) const;
  // Expert in one of this rank's slots, -1 where it is empty; and in one of any rank's.
  int32_t expert_in_slot(int32_t slot) const { return expert_in_slot_of(rank_.value, slot); }
  int32_t expert_in_slot_of(int32_t rank, int32_t slot) const {
    return experts_to_copy_[static_cast<size_t>(rank) * slots_ + slot];
  }

  PlanTensors Tensors() const;
  PlanFacts facts() const { return {tag_, token_count_, used_rows()}; }

 private:
  const ObjectTag tag_;
  const RankId rank_;
  const int32_t token_count_;
  const int32_t slots_;
  const std::vector<int32_t> dst_;               // [S, K]
  const std::vector<int32_t> cu_seqlens_;        // [E + B]
  const std::vector<int32_t> zero_fill_ranges_;  // [E + B, 2]
  const std::vector<int32_t> experts_to_copy_;   // [R, B]
  const std::vector<int32_t> load_;              // [R]
  const std::vector<int32_t> home_load_;         // [R]
  const std::vector<int32_t> remote_stats_;      // [2]
  const DuplicateGroups duplicates_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_PLAN_H_
