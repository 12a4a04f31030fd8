#include "tests/contract/test_data.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(OnRandomGroupsTest, AsManyRunAsAreAskedForWhateverIsTooLarge) {
  constexpr int kGroups = 200;
  const uint64_t seed = TestSeed();
  std::vector<std::string> runs[2];
  for (auto& ran : runs) {
    std::mt19937_64 random(seed);
    OnRandomGroups(random, kGroups, 2, [&](int i, const GroupInput& input) {
      EXPECT_EQ(static_cast<size_t>(i), ran.size());
      EXPECT_LE(input.geometry.ranks, 2);
      ran.push_back(input.Describe());
    });
  }
  EXPECT_EQ(runs[0].size(), static_cast<size_t>(kGroups));
  EXPECT_EQ(runs[0], runs[1]) << "a seed gives the same groups again";
}

}  // namespace
}  // namespace perigee
