#include "kernels/plan/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Geometry kGeometry{.ranks = 2, .experts = 4, .tokens = 3, .topk = 2};

TEST(Histogram, CountsUnmaskedRoutesOfValidTokens) {
  const std::vector<int32_t> topk = {0, 3, -1, 3, 2, 2};
  EXPECT_THAT(*CountRoutes(kGeometry, RankId(0), topk, 3), ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(*CountRoutes(kGeometry, RankId(0), topk, 2), ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(*CountRoutes(kGeometry, RankId(0), topk, 0), ElementsAre(0, 0, 0, 0));
}

TEST(Histogram, TokensPastTheCountAreNotLookedAt) {
  const std::vector<int32_t> topk = {0, 1, 0, 1, 99, -99};
  EXPECT_TRUE(CountRoutes(kGeometry, RankId(0), topk, 2).ok());
  EXPECT_FALSE(CountRoutes(kGeometry, RankId(0), topk, 3).ok());
}

TEST(Histogram, NamesTheFirstBadRoute) {
  for (int32_t bad : {4, -2, INT32_MIN, INT32_MAX}) {
    const std::vector<int32_t> topk = {0, 1, 2, bad, 3, bad};
    EXPECT_EQ(FindBadRoute(kGeometry, topk, 3), (BadRoute{1, 1, bad}));
    const absl::Status status = CountRoutes(kGeometry, RankId(1), topk, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(
        std::string(status.message()),
        "rank 1 token 1 k 1: expert id " + std::to_string(bad) + ", expected -1 (masked) to 3");
  }
  EXPECT_EQ(FindBadRoute(kGeometry, {0, 1, 2, 3, -1, 0}, 3), absl::nullopt);
}

TEST(Histogram, RefusesOtherShapes) {
  EXPECT_THAT(std::string(CountRoutes(kGeometry, RankId(1), {0, 1}, 1).status().message()),
              HasSubstr("rank 1 has 2 routes, expected 3 tokens * 2"));
  EXPECT_THAT(
      std::string(CountRoutes(kGeometry, RankId(1), {0, 1, 0, 1, 0, 1}, 4).status().message()),
      HasSubstr("token count of rank 1 is 4, expected 0 to 3"));
}

}  // namespace
}  // namespace perigee
