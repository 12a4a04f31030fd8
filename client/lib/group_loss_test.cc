#include "client/lib/group_loss.h"

#include <string>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(LossOfTest, EveryRankNamesThoseThatWereLost) {
  v1::Group group;
  group.set_generation(7);
  for (int rank = 0; rank < 3; ++rank) {
    v1::GroupMember* member = group.add_members();
    member->set_rank(rank);
    member->set_worker("workers/w" + std::to_string(rank));
  }
  group.add_lost_ranks(1);
  const v1::GroupError error = LossOf(group);
  ASSERT_EQ(error.ranks_size(), 3);
  for (const v1::RankStatus& rank : error.ranks()) {
    EXPECT_EQ(rank.message(),
              rank.rank() == 1 ? "workers/w1 was lost" : "rank 1 (workers/w1) was lost");
    EXPECT_EQ(rank.reason(), rank.rank() == 1 ? "RANK_LOST" : "GENERATION_ABORTED");
  }
  group.add_lost_ranks(2);
  EXPECT_EQ(LossOf(group).ranks(0).message(), "rank 1 (workers/w1), rank 2 (workers/w2) were lost");
}

}  // namespace
}  // namespace perigee
