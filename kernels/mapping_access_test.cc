#include "kernels/mapping_access.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(MappingAccessTest, TheWordsOfTheWire) {
  EXPECT_EQ(AccessSet().ToString(), "nothing");
  EXPECT_EQ(kReadAccess.ToString(), "load, bulk_copy");
  EXPECT_EQ(kFullAccess.ToString(), "load, store, bulk_copy, atomics");
}

TEST(MappingAccessTest, WordsComeBackAsTheyWere) {
  for (const AccessSet set : {AccessSet(), kReadAccess, kFullAccess, AccessSet{Access::kAtomics}}) {
    const absl::StatusOr<AccessSet> parsed = AccessSet::Parse(set.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, set);
  }
  EXPECT_EQ(std::string(AccessSet::Parse("load, stor").status().message()),
            "'stor' is no way of access, expected load, store, bulk_copy or atomics");
  EXPECT_FALSE(AccessSet::Parse("").ok());
}

TEST(MappingAccessTest, WhatIsMissingIsNamedWithItsRank) {
  const std::vector<AccessSet> allowed = {kFullAccess, kReadAccess};
  EXPECT_TRUE(CheckAccess("rows", allowed, {}).ok());
  EXPECT_TRUE(CheckAccess("rows", allowed, {Access::kLoad, Access::kBulkCopy}).ok());
  EXPECT_TRUE(CheckAccess("rows", {kFullAccess}, {Access::kStore, Access::kAtomics}).ok());
  const absl::Status status = CheckAccess("rows", allowed, {Access::kAtomics});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "the mapping of rows of rank 1 allows load, bulk_copy, the consumer needs atomics");
}

}  // namespace
}  // namespace perigee
