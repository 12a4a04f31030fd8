#include "kernels/cuda/planning_scratch.h"

#include <gtest/gtest.h>

#include <vector>

namespace perigee {
namespace {

constexpr Geometry kGeometries[] = {
    {.ranks = 8, .experts = 256, .tokens = 8192, .topk = 8, .slots = 32},
    {.ranks = 1, .experts = 1, .tokens = 0, .topk = 1, .slots = 0},
    {.ranks = 128, .experts = 65536, .tokens = 64, .topk = 32, .slots = 512},
    {.ranks = 2, .experts = 4, .tokens = 1, .topk = 1, .slots = 9, .token_padding = 1},
};

constexpr int32_t kBlocks[] = {1, 4, 16, 132};

TEST(PlanningShapeTest, WhatIsSharedFits) {
  for (const Geometry& geometry : kGeometries) {
    for (const int32_t blocks : kBlocks) {
      const PlanningShape shape = PlanningShape::Of(geometry, blocks);
      EXPECT_GE(shape.warps, 1);
      EXPECT_LE(shape.warps, PlanningShape::kMostWarps);
      int64_t words = 0;
      if (shape.sums_are_shared) words += geometry.experts;
      if (shape.counts_are_shared) words += int64_t{shape.warps} * geometry.experts;
      if (shape.tables_are_shared) words += GroupTables::Words(geometry);
      EXPECT_LE(words * sizeof(int32_t), kDispatchSharedBytes);
    }
  }
}

TEST(PlanningShapeTest, UsualShapesAreSharedAltogether) {
  for (const int32_t experts : {64, 256, 896}) {
    const Geometry geometry = {.ranks = 8, .experts = experts, .tokens = 8192, .topk = 8};
    const PlanningShape shape = PlanningShape::Of(geometry, 16);
    EXPECT_TRUE(shape.sums_are_shared && shape.counts_are_shared && shape.tables_are_shared);
    EXPECT_EQ(shape.warps, PlanningShape::kMostWarps);
  }
}

TEST(GroupTablesTest, PartsLieInItsWords) {
  for (const Geometry& geometry : kGeometries) {
    auto* base = reinterpret_cast<int32_t*>(uintptr_t{1} << 32);  // never touched
    const GroupTables tables = GroupTables::At(base, geometry);
    const int64_t table = int64_t{geometry.experts} * geometry.ranks;
    EXPECT_EQ(tables.alloc, base);
    EXPECT_EQ(tables.group_start - tables.alloc, table);
    EXPECT_EQ(tables.lower - tables.group_start, table);
    EXPECT_EQ(tables.whole_at - tables.lower, geometry.experts);
    EXPECT_EQ(tables.work - tables.whole_at, geometry.experts);
    EXPECT_EQ(tables.work + 3 * geometry.experts - base, GroupTables::Words(geometry));
  }
}

TEST(PlanningScratchTest, PartsFollowEachOtherAndFit) {
  for (const Geometry& geometry : kGeometries) {
    for (const int32_t blocks : kBlocks) {
      size_t size_bytes = 0;
      PlacePlanningScratch(geometry, blocks, nullptr, &size_bytes);
      size_t same_bytes = 0;
      // Never touched: only its addresses are looked at.
      auto* base = reinterpret_cast<std::byte*>(uintptr_t{1} << 32);
      const PlanningScratch scratch = PlacePlanningScratch(geometry, blocks, base, &same_bytes);
      EXPECT_EQ(same_bytes, size_bytes);
      const auto* begin = reinterpret_cast<const int32_t*>(base);
      const int32_t* const parts[] = {begin, scratch.routes, scratch.block_counts};
      for (size_t i = 1; i < std::size(parts); ++i) EXPECT_GE(parts[i], parts[i - 1]);
      EXPECT_GE(scratch.block_counts - scratch.routes, geometry.routes());
      EXPECT_LE(
          reinterpret_cast<std::byte*>(scratch.block_counts + int64_t{blocks} * geometry.experts),
          base + size_bytes);
      const PlanningShape shape = PlanningShape::Of(geometry, blocks);
      EXPECT_EQ(scratch.sums == nullptr, shape.sums_are_shared);
      EXPECT_EQ(scratch.warp_counts == nullptr, shape.counts_are_shared);
      EXPECT_EQ(scratch.tables == nullptr, shape.tables_are_shared);
    }
  }
}

}  // namespace
}  // namespace perigee
