#include "client/cli/bench/bench_bytes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr int64_t kRowBytes = 16;
constexpr int64_t kWeightBytes = 4;

// Two ranks of two tokens with two routes each, an expert a rank and no slots. Token 0 of rank 0
// goes to both ranks, token 1 twice to its own; of rank 1 only token 0 has a route, to rank 0.
GroupPlan SmallPlan() {
  const Geometry geometry{
      .ranks = 2, .experts = 4, .tokens = 2, .topk = 2, .slots = 2, .token_padding = 1};
  auto plan = PlanGroup(geometry, std::vector<int32_t>{0, 2, 0, 1, 0, -1, -1, -1}, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(Moved, CountsALinkOnceAndTakesTheBusiestRank) {
  const std::vector<Traffic> ranks = {{10, 20, 3, 4}, {1, 2, 5, 4}};
  const MovedBytes moved = Moved({{ranks, LinkMover::kSender}});
  EXPECT_EQ(moved.total_bytes, 10 + 20 + 4 + 1 + 2 + 4);
  EXPECT_EQ(moved.max_local_bytes, 30);
  EXPECT_EQ(moved.max_link_bytes, 5);
  EXPECT_EQ(moved.max_rank_bytes, 33);
  EXPECT_EQ(Moved({{ranks, LinkMover::kReceiver}}).max_rank_bytes, 34);
  const MovedBytes both = Moved({{ranks, LinkMover::kSender}, {ranks, LinkMover::kReceiver}});
  EXPECT_EQ(both.max_rank_bytes, 33 + 34);
  EXPECT_EQ(both.total_bytes, 2 * moved.total_bytes);
}

// The same counts as kernels/plan/bytes.h, summed by hand.
TEST(DispatchBytes, AreThoseOfTheCounter) {
  const GroupPlan plan = SmallPlan();
  int64_t total = 0;
  for (const RowCounts& rows : CountRows(plan)) {
    total += kRowBytes * (rows.source_rows + rows.duplicated_primaries + rows.primaries_local +
                          rows.padding_rows + rows.duplicates + rows.primaries_received);
    // A weight is read where it comes from and written where it goes.
    total += kWeightBytes * (2 * rows.routes + rows.padding_rows);
  }
  EXPECT_EQ(DispatchBytes(plan, kRowBytes).total_bytes, total);
}

TEST(CombineBytes, IncludeTheLocalSumAndNoWeights) {
  const GroupPlan plan = SmallPlan();
  int64_t total = 0, link = 0;
  for (const RowCounts& rows : CountRows(plan)) {
    total += kRowBytes * (2 * rows.duplicated_primaries + rows.duplicates + rows.primaries_local +
                          rows.primaries_sent + rows.tokens);
    link = std::max({link, kRowBytes * rows.primaries_sent, kRowBytes * rows.primaries_received});
  }
  EXPECT_EQ(CombineBytes(plan, kRowBytes).total_bytes, total);
  EXPECT_EQ(CombineBytes(plan, kRowBytes).max_link_bytes, link);
}

TEST(StepBytes, AreThoseOfBothOperations) {
  const GroupPlan plan = SmallPlan();
  const MovedBytes step = StepBytes(plan, kRowBytes);
  const MovedBytes dispatch = DispatchBytes(plan, kRowBytes);
  const MovedBytes combine = CombineBytes(plan, kRowBytes);
  EXPECT_EQ(step.total_bytes, dispatch.total_bytes + combine.total_bytes);
  EXPECT_GT(step.max_local_bytes, dispatch.max_local_bytes);
  EXPECT_LE(step.max_local_bytes, dispatch.max_local_bytes + combine.max_local_bytes);
}

TEST(StagedBytes, AreThoseOfACopyOfAllGroupsMore) {
  const GroupPlan plan = SmallPlan();
  int64_t rows = 0;
  for (const RowCounts& counts : CountRows(plan)) {
    rows += counts.primaries_local + counts.primaries_received + counts.duplicates;
    rows += counts.padding_rows;
  }
  const int64_t copied = 2 * rows * kRowBytes;
  EXPECT_EQ(StagedDispatchBytes(plan, kRowBytes).total_bytes,
            DispatchBytes(plan, kRowBytes).total_bytes + copied);
  EXPECT_EQ(StagedCombineBytes(plan, kRowBytes).total_bytes,
            CombineBytes(plan, kRowBytes).total_bytes + copied);
}

TEST(PrefetchBytes, AreAMultipleOfAnExpert) {
  EXPECT_EQ(PrefetchBytes(SmallPlan(), 1000).total_bytes % 1000, 0);
}

TEST(MeanOf, IsThatOfEveryCount) {
  const MovedBytes mean =
      MeanOf({{.total_bytes = 8, .max_local_bytes = 1, .max_link_bytes = 30, .max_rank_bytes = 0},
              {.total_bytes = 4, .max_local_bytes = 3, .max_link_bytes = 10, .max_rank_bytes = 8}});
  EXPECT_EQ(mean.total_bytes, 6);
  EXPECT_EQ(mean.max_local_bytes, 2);
  EXPECT_EQ(mean.max_link_bytes, 20);
  EXPECT_EQ(mean.max_rank_bytes, 4);
}

TEST(Rates, OfASharedMemoryAreThoseOfAllRanks) {
  const CopyTimes copy{.rank_bytes = 1'000'000, .own_us = 10, .link_us = 20};
  EXPECT_DOUBLE_EQ(CopyGbPerSecond(copy, RankMemory::kOneForEach, 8), 200);
  EXPECT_DOUBLE_EQ(CopyGbPerSecond(copy, RankMemory::kOneForAll, 8), 1600);
  EXPECT_DOUBLE_EQ(LinkGbPerSecond(copy), 50);
  EXPECT_DOUBLE_EQ(AloneGbPerSecond({.rank_bytes = 1'000'000, .alone_us = 4}), 500);
  EXPECT_EQ(LinkGbPerSecond(CopyTimes{.rank_bytes = 1}), 0) << "not measured";
}

TEST(FloorOf, ASharedMemoryTakesAllBytes) {
  const CopyTimes copy{.rank_bytes = 1'000'000, .own_us = 10, .link_us = 20};
  const Floor floor = FloorOf({8'000'000, 2'000'000, 5'000'000}, copy, RankMemory::kOneForAll, 4);
  EXPECT_DOUBLE_EQ(floor.us, 10);
  EXPECT_EQ(std::string(floor.bound), "memory");
}

TEST(FloorOf, OfASharedMemoryABusyRankCannotTakeAll) {
  const CopyTimes copy{.rank_bytes = 1'000'000, .own_us = 10, .alone_us = 5};
  const MovedBytes uneven{.total_bytes = 8'000'000, .max_rank_bytes = 8'000'000};
  Floor floor = FloorOf(uneven, copy, RankMemory::kOneForAll, 4);
  EXPECT_DOUBLE_EQ(floor.us, 20);
  EXPECT_EQ(std::string(floor.bound), "rank");
  const MovedBytes even{.total_bytes = 8'000'000, .max_rank_bytes = 2'000'000};
  floor = FloorOf(even, copy, RankMemory::kOneForAll, 4);
  EXPECT_DOUBLE_EQ(floor.us, 10);
  EXPECT_EQ(std::string(floor.bound), "memory");
}

TEST(FloorOf, SeparateDevicesAreBoundByTheSlowerOfLinkAndMemory) {
  const CopyTimes copy{.rank_bytes = 1'000'000, .own_us = 10, .link_us = 20};
  Floor floor = FloorOf({8'000'000, 2'000'000, 1'000'000}, copy, RankMemory::kOneForEach, 4);
  EXPECT_DOUBLE_EQ(floor.us, 20);
  EXPECT_EQ(std::string(floor.bound), "link");
  floor = FloorOf({8'000'000, 6'000'000, 1'000'000}, copy, RankMemory::kOneForEach, 4);
  EXPECT_DOUBLE_EQ(floor.us, 30);
  EXPECT_EQ(std::string(floor.bound), "local");
}

}  // namespace
}  // namespace perigee
