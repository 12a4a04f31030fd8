#include "kernels/plan/compare.h"

#include <gtest/gtest.h>

namespace perigee {
namespace {

std::vector<int32_t> Flatten(const Matrix& matrix) {
  std::vector<int32_t> flat;
  for (const auto& row : matrix) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

}  // namespace

void ExpectSamePlan(const GroupPlan& plan, const ReferencePlan& expected) {
  const Placement& placement = plan.placement;
  EXPECT_EQ(placement.transfers, Flatten(expected.transfers)) << "transfers";
  EXPECT_EQ(placement.alloc, Flatten(expected.alloc)) << "alloc";
  EXPECT_EQ(placement.experts_to_copy, Flatten(expected.experts_to_copy)) << "experts_to_copy";
  EXPECT_EQ(placement.cu_seqlens, Flatten(expected.cu_seqlens)) << "cu_seqlens";
  EXPECT_EQ(placement.remote_stats, Flatten(expected.remote_stats)) << "remote_stats";
  std::vector<int32_t> zero_fill;
  for (const auto& rank : expected.zero_fill) {
    for (const auto& range : rank) zero_fill.insert(zero_fill.end(), range.begin(), range.end());
  }
  EXPECT_EQ(placement.zero_fill_ranges, zero_fill) << "zero_fill_ranges";
  EXPECT_EQ(plan.dst, Flatten(expected.dst)) << "dst";
  ASSERT_EQ(plan.duplicates.size(), expected.duplicate_groups.size());
  for (size_t rank = 0; rank < plan.duplicates.size(); ++rank) {
    std::vector<DuplicateGroup> groups;
    for (const auto& [primary, start, count] : expected.duplicate_groups[rank]) {
      groups.push_back({primary, start, count});
    }
    EXPECT_EQ(plan.duplicates[rank].groups, groups) << "duplicate groups of rank " << rank;
    EXPECT_EQ(plan.duplicates[rank].rows, expected.duplicate_rows[rank])
        << "duplicate rows of rank " << rank;
  }
}

}  // namespace perigee
