#include "kernels/plan/duplicates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two groups of 3 and 2 rows, padded to 4, an empty one between them: rows 3, 6 and 7 are padding.
const std::vector<int32_t> kEnds = {4, 4, 8};
const std::vector<int32_t> kZeroFill = {3, 1, 0, 0, 6, 2};
constexpr int32_t kPoison = -77;

TEST(Duplicates, OrderedByPrimaryThenK) {
  //                                     0  1  2     3     4  5     6        7     past the end
  const std::vector<int32_t> primary = {2, -1, -1, kPoison, 2, 1, kPoison, kPoison, kPoison};
  const std::vector<uint8_t> ordinal = {2, 0, 0, 99, 1, 1, 99, 99, 99};
  const auto lists = BuildDuplicateGroups(kEnds, kZeroFill, primary, ordinal);
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_THAT(lists->groups, ElementsAre(DuplicateGroup{1, 0, 1}, DuplicateGroup{2, 1, 2}));
  EXPECT_THAT(lists->rows, ElementsAre(5, 4, 0));
}

TEST(Duplicates, NoneAtAll) {
  const std::vector<int32_t> primary = {-1, -1, -1, kPoison, -1, -1, kPoison, kPoison};
  const std::vector<uint8_t> ordinal(8, 0);
  const auto lists = BuildDuplicateGroups(kEnds, kZeroFill, primary, ordinal);
  ASSERT_TRUE(lists.ok());
  EXPECT_THAT(lists->groups, IsEmpty());
  EXPECT_THAT(lists->rows, IsEmpty());
  EXPECT_TRUE(BuildDuplicateGroups({0, 0}, {0, 0, 0, 0}, {}, {}).ok());
}

TEST(Duplicates, RefusesMapsThatAreNoLists) {
  const std::vector<int32_t> primary = {2, -1, -1, kPoison, 2, -1, kPoison, kPoison};
  const std::vector<uint8_t> ordinal = {2, 0, 0, 0, 1, 0, 0, 0};
  ASSERT_TRUE(BuildDuplicateGroups(kEnds, kZeroFill, primary, ordinal).ok());
  for (int32_t bad : {-2, 8, INT32_MIN, INT32_MAX, 4}) {
    auto broken = primary;
    broken[0] = bad;
    const auto lists = BuildDuplicateGroups(kEnds, kZeroFill, broken, ordinal);
    EXPECT_EQ(lists.status().code(), absl::StatusCode::kInternal) << bad;
    EXPECT_THAT(std::string(lists.status().message()), HasSubstr("at row 0"));
  }
  for (uint8_t bad : {0, 1, 3, 255}) {
    auto broken = ordinal;
    broken[0] = bad;
    EXPECT_FALSE(BuildDuplicateGroups(kEnds, kZeroFill, primary, broken).ok()) << int{bad};
  }
}

}  // namespace
}  // namespace perigee
