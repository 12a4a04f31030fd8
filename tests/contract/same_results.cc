#include "tests/contract/same_results.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/contract/test_data.h"

namespace perigee {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSamePlan(const PlanTensors& is, const PlanTensors& wanted) {
  EXPECT_EQ(is.dst, wanted.dst);
  EXPECT_EQ(is.cu_seqlens, wanted.cu_seqlens);
  EXPECT_EQ(is.zero_fill_ranges, wanted.zero_fill_ranges);
  EXPECT_EQ(is.experts_to_copy, wanted.experts_to_copy);
  EXPECT_EQ(is.load, wanted.load);
  EXPECT_EQ(is.home_load, wanted.home_load);
  EXPECT_EQ(is.remote_stats, wanted.remote_stats);
  EXPECT_EQ(is.duplicate_groups, wanted.duplicate_groups);
  EXPECT_EQ(is.duplicate_rows, wanted.duplicate_rows);
}

}  // namespace

void ExpectSameResults(const std::vector<DispatchResult>& results,
                       const std::vector<DispatchResult>& wanted) {
  ASSERT_EQ(results.size(), wanted.size());
  for (size_t rank = 0; rank < results.size(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    ASSERT_TRUE(results[rank].status.ok()) << results[rank].status;
    ASSERT_TRUE(wanted[rank].status.ok()) << wanted[rank].status;
    ExpectSamePlan(results[rank].tensors, wanted[rank].tensors);
    EXPECT_TRUE(results[rank].rows == wanted[rank].rows);
    EXPECT_TRUE(SameBits(results[rank].row_weights, wanted[rank].row_weights));
  }
}

void ExpectSameAfterwards(RankGroup& group, const GroupInput& input, uint32_t salt, Copy copy,
                          std::mt19937_64& random, const std::vector<DispatchResult>& results,
                          const std::vector<DispatchResult>& wanted) {
  const std::vector<RankInput> others = NamedInputs(input, group.hidden(), salt);
  ExpectSameResults(group.DispatchWithPlan(results, others, copy),
                    group.DispatchWithPlan(wanted, others, copy));
  std::vector<std::vector<BFloat16>> rows;
  const size_t size = static_cast<size_t>(group.geometry().logical_rows()) * group.hidden();
  for (int32_t i = 0; i < group.ranks(); ++i) rows.push_back(RandomNumbers(random, size));
  const auto sums = group.Combine(results, rows, {}, Copy::kCopied);
  const auto wanted_sums = group.Combine(wanted, rows, {}, Copy::kCopied);
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    ASSERT_TRUE(sums[rank].status.ok()) << sums[rank].status;
    EXPECT_TRUE(sums[rank].hidden == wanted_sums[rank].hidden) << "sums of rank " << rank;
  }
}

}  // namespace perigee
