#include "client/cli/bench/bench_data.h"

#include <algorithm>
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

TEST(RemoteRoutes, LeaveEveryRankWithAsManyRowsAsItHasTokens) {
  for (const int32_t tokens : {1, 7, 12}) {
    const Geometry geometry{.ranks = 4, .experts = 8, .tokens = tokens, .topk = 1, .slots = 2};
    const std::vector<int32_t> routes = RemoteRoutes(9, geometry);
    ASSERT_EQ(routes.size(), size_t{4} * tokens);
    std::vector<int> rows(4);
    for (size_t i = 0; i < routes.size(); ++i) {
      const size_t to = static_cast<size_t>(routes[i]) / 2;
      ASSERT_LT(to, 4u);
      EXPECT_NE(to, i / tokens) << "it crosses a link";
      ++rows[to];
    }
    EXPECT_EQ(rows, std::vector<int>(4, tokens));
  }
}

// How often each expert is a token's first.
std::vector<int> FirstRoutes(const Geometry& geometry, double sigma, uint64_t seed) {
  std::vector<int> counts(geometry.experts);
  const std::vector<int32_t> routes = SkewedRoutes(seed, geometry, sigma);
  for (size_t i = 0; i < routes.size(); i += geometry.topk) ++counts[routes[i]];
  std::sort(counts.begin(), counts.end());
  return counts;
}

TEST(SkewedRoutes, AreDistinctExpertsHoweverSkewed) {
  const Geometry geometry{.ranks = 2, .experts = 12, .tokens = 50, .topk = 12, .slots = 6};
  for (const double sigma : {0.0, 0.1, 5.0, kMostSkew}) {
    const std::vector<int32_t> routes = SkewedRoutes(9, geometry, sigma);
    ASSERT_EQ(routes.size(), 1200u);
    for (size_t token = 0; token < routes.size(); token += 12) {
      const std::set<int32_t> experts(routes.begin() + token, routes.begin() + token + 12);
      EXPECT_EQ(experts.size(), 12u) << "sigma " << sigma;
      EXPECT_EQ(*experts.begin(), 0);
      EXPECT_EQ(*experts.rbegin(), 11);
    }
    EXPECT_EQ(routes, SkewedRoutes(9, geometry, sigma));
    EXPECT_NE(routes, SkewedRoutes(10, geometry, sigma));
  }
}

TEST(SkewedRoutes, FollowTheirWeights) {
  const Geometry geometry{.ranks = 2, .experts = 64, .tokens = 16000, .topk = 1, .slots = 32};
  const std::vector<int> even = FirstRoutes(geometry, 0, 3);
  EXPECT_GT(even.front(), 350) << "of 500";
  EXPECT_LT(even.back(), 650);
  // Of a lognormal distribution of sigma 1 the logarithms of the counts spread like a normal one.
  double sum = 0, squares = 0;
  const std::vector<int> skewed = FirstRoutes(geometry, 1, 3);
  for (const int count : skewed) sum += std::log(count);
  for (const int count : skewed) squares += std::pow(std::log(count) - sum / 64, 2);
  EXPECT_NEAR(std::sqrt(squares / 63), 1, 0.35);
  EXPECT_GT(FirstRoutes(geometry, 5, 3).back(), 16000);
}

// The second expert of a token by the weights of those that are left: of three experts with weights
// w, given the first one, the others in the proportion of their weights.
TEST(SkewedRoutes, WhatIsLeftKeepsItsProportion) {
  const Geometry geometry{.ranks = 1, .experts = 3, .tokens = 200000, .topk = 3, .slots = 3};
  const std::vector<int32_t> routes = SkewedRoutes(4, geometry, 1);
  double first[3] = {}, second[3][3] = {};
  for (size_t i = 0; i < routes.size(); i += 3) {
    ++first[routes[i]];
    ++second[routes[i]][routes[i + 1]];
  }
  for (int a = 0; a < 3; ++a) {
    const int b = (a + 1) % 3, c = (a + 2) % 3;
    EXPECT_NEAR(second[a][b] / (second[a][b] + second[a][c]), first[b] / (first[b] + first[c]),
                0.03);
  }
}

}  // namespace
}  // namespace perigee
