#include "client/lib/group_error.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

v1::GroupError LossOfRank1() {
  v1::GroupError error;
  error.set_group("tenants/default/groups/g");
  error.set_generation(7);
  error.add_lost_ranks(1);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankStatus* status = error.add_ranks();
    status->set_rank(rank);
    status->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    status->set_message("rank 1 (workers/w1) was lost");
  }
  return error;
}

TEST(GroupErrorTest, TravelsInAStatus) {
  const absl::Status status = WithGroupError(absl::UnavailableError("lost"), LossOfRank1());
  const auto error = GroupErrorOf(status);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->generation(), 7u);
  ASSERT_EQ(error->ranks_size(), 2);
  EXPECT_EQ(DescribeRank(error->ranks(0)), "rank 0: UNAVAILABLE: rank 1 (workers/w1) was lost");
}

TEST(GroupErrorTest, AbsentFromOrdinaryFailures) {
  EXPECT_FALSE(GroupErrorOf(absl::NotFoundError("no group")).has_value());
  EXPECT_FALSE(GroupErrorOf(absl::OkStatus()).has_value());
}

TEST(GroupErrorTest, ARankThatIsFineSaysSo) {
  v1::RankStatus rank;
  rank.set_rank(4);
  EXPECT_EQ(DescribeRank(rank), "rank 4: OK");
}

}  // namespace
}  // namespace perigee
