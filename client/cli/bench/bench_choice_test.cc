#include "client/cli/bench/bench_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

BenchResult Result() {
  BenchResult result;
  result.options.backend = "cuda";
  result.options.ranks = 4;
  result.options.memory = RankMemory::kOneForEach;
  result.options.sms = 16;
  result.device = "GPU";
  return result;
}

ShapeResult Shape(const std::vector<std::pair<std::string, double>>& means) {
  ShapeResult shape;
  shape.shape = *ParseBenchShape("S64,H128,K2,E8");
  shape.home_imbalance = 1.5;
  for (const auto& [name, mean_us] : means) {
    shape.operations.push_back({name, Spread{.mean_us = mean_us}, absl::nullopt, absl::nullopt});
  }
  return shape;
}

TEST(CellOf, HasMeansOfWhatRanBackToBack) {
  const auto cell = CellOf(Result(), Shape({{"produce_dispatch", 1},
                                            {"produce_dispatch_back_to_back", 600},
                                            {"direct_back_to_back", 500},
                                            {"direct_overlapped_back_to_back", 400}}));
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(Describe(cell->machine), "4 x GPU (cuda, nvlink, SMs 16, local SMs default)");
  EXPECT_EQ(Describe(cell->shape), "S64,H128,K2,E8,P128,B2 on 4 ranks");
  EXPECT_EQ(cell->routes, "uniform");
  EXPECT_EQ(cell->home_imbalance, 1.5);
  EXPECT_EQ(cell->costs, (PathCosts{absl::nullopt, absl::nullopt, 600, 500, 400}));
  EXPECT_EQ(ChoiceOf(*cell).path, DispatchPath::kDirectOverlapped);
}

TEST(CellOf, APullIsHeldAgainstADispatch) {
  const auto cell =
      CellOf(Result(), Shape({{"dispatch_back_to_back", 500}, {"pull_back_to_back", 300}}));
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(cell->costs.dispatch_us, 500);
  EXPECT_EQ(cell->costs.pull_us, 300);
  EXPECT_EQ(ChoiceOf(*cell).path, DispatchPath::kPull);
}

TEST(CellOf, NothingIsACellWithoutAPath) {
  EXPECT_FALSE(CellOf(Result(), Shape({{"combine_back_to_back", 3}, {"dispatch", 4}})).has_value());
}

TEST(CellOf, RoutesAreNamedAsTheyWereGiven) {
  BenchResult result = Result();
  const auto routes = [&] { return CellOf(result, Shape({{"dispatch_back_to_back", 3}}))->routes; };
  result.options.routes.skew = 0.1;
  EXPECT_EQ(routes(), "skew 0.1");
  result.options.routes = {"/some/where/t.safetensors", 3, 1};
  EXPECT_EQ(routes(), "trace t.safetensors, layer 3");
}

TEST(MachineOf, RanksThatShareADeviceHaveOne) {
  BenchOptions options;
  options.ranks = 8;
  options.memory = RankMemory::kOneForAll;
  EXPECT_EQ(MachineOf(options, "CPU").devices, 1);
}

}  // namespace
}  // namespace perigee
