#include "client/cli/bench/bench_data.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(DeriveSeed, DiffersByTensorAndRank) {
  std::set<uint64_t> seeds;
  for (uint64_t tensor = 0; tensor < 50; ++tensor) {
    for (uint64_t rank = 0; rank < 50; ++rank) seeds.insert(DeriveSeed(7, tensor, rank));
  }
  EXPECT_EQ(seeds.size(), 2500u);
  EXPECT_EQ(DeriveSeed(7, 3, 4), DeriveSeed(7, 3, 4));
}

TEST(RandomBFloat16, IsNormal) {
  const std::vector<BFloat16> values = RandomBFloat16(3, 100000, 2);
  double sum = 0, squares = 0;
  for (BFloat16 value : values) {
    sum += ToFloat(value);
    squares += std::pow(ToFloat(value), 2);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.1);
  EXPECT_NEAR(squares / 1e5, 4, 0.3);
}

TEST(RandomBFloat16, AShorterSequenceIsAPrefix) {
  const std::vector<BFloat16> longer = RandomBFloat16(3, 1001, 1);
  const std::vector<BFloat16> shorter = RandomBFloat16(3, 13, 1);
  for (size_t i = 0; i < shorter.size(); ++i) EXPECT_EQ(shorter[i], longer[i]);
}

TEST(RandomWeights, LieBetweenZeroAndOne) {
  for (float weight : RandomWeights(5, 1000)) {
    EXPECT_GE(weight, 0);
    EXPECT_LT(weight, 1);
  }
}

TEST(RandomRoutes, AreDistinctExpertsForEveryToken) {
  const Geometry geometry{.ranks = 2, .experts = 8, .tokens = 100, .topk = 8, .slots = 4};
  const std::vector<int32_t> routes = RandomRoutes(9, geometry);
  ASSERT_EQ(routes.size(), 1600u);
  for (size_t token = 0; token < routes.size(); token += 8) {
    const std::set<int32_t> experts(routes.begin() + token, routes.begin() + token + 8);
    EXPECT_EQ(experts.size(), 8u);
    EXPECT_EQ(*experts.begin(), 0);
    EXPECT_EQ(*experts.rbegin(), 7);
  }
  EXPECT_EQ(routes, RandomRoutes(9, geometry));
  EXPECT_NE(routes, RandomRoutes(10, geometry));
}

}  // namespace
}  // namespace perigee
