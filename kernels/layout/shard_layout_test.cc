#include "kernels/layout/shard_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace perigee {
namespace {

struct Part {
  size_t offset;
  size_t bytes;
};

std::vector<Part> PartsOf(const ShardLayout& layout, const Geometry& geometry, int32_t hidden) {
  const size_t rows = layout.logical_rows;
  return {
      {layout.control, sizeof(ControlPage)},
      {layout.planning, 2 * sizeof(PlanningHeader)},
      {layout.histograms, 2 * sizeof(int32_t) * geometry.experts},
      {layout.duplicate_primary, rows * sizeof(int32_t)},
      {layout.duplicate_ordinal, rows},
      {layout.rows, sizeof(BFloat16) * layout.padded_rows * hidden},
      {layout.row_weights, rows * sizeof(float)},
  };
}

TEST(ShardLayoutTest, PartsFollowEachOtherWithoutOverlap) {
  for (size_t granularity : {size_t{4096}, size_t{2} << 20}) {
    for (int32_t hidden : {8, 24, 256, 7168}) {
      for (int32_t tokens : {0, 1, 300}) {
        const Geometry geometry = {
            .ranks = 3, .experts = 9, .tokens = tokens, .topk = 5, .slots = 3};
        const ShardLayout layout = ShardLayout::Create(geometry, hidden, 0, granularity);
        size_t end = 0;
        for (const Part& part : PartsOf(layout, geometry, hidden)) {
          EXPECT_GE(part.offset, end);
          EXPECT_EQ(part.offset % 64, 0u);
          end = part.offset + part.bytes;
        }
        EXPECT_LE(end, layout.size_bytes);
        EXPECT_LT(layout.size_bytes - end, granularity);
        EXPECT_EQ(layout.size_bytes % granularity, 0u);
        EXPECT_EQ(layout.rows % granularity, 0u);
        EXPECT_EQ(layout.words_bytes() + layout.rows_bytes(), layout.size_bytes);
      }
    }
  }
}

// Without slots the layout is what it was; each adds an area like the shard's, at a whole page.
TEST(ShardLayoutTest, EachSlotAddsAnAreaOfRowsAndWeights) {
  const Geometry geometry = {.ranks = 2, .experts = 4, .tokens = 300, .topk = 5, .slots = 2};
  const ShardLayout without = ShardLayout::Create(geometry, 24);
  const ShardLayout with = ShardLayout::Create(geometry, 24, 3);
  // Off, nothing is taken: the part ends with its weights, up to the granularity.
  const size_t end = without.row_weights + geometry.logical_rows() * sizeof(float);
  EXPECT_GE(without.size_bytes, end);
  EXPECT_LT(without.size_bytes - end, kHostGranularityBytes);
  EXPECT_EQ(without.area_bytes, without.rows_bytes());
  EXPECT_EQ(with.words_bytes(), without.words_bytes());
  EXPECT_EQ(with.size_bytes, without.size_bytes + 3 * without.rows_bytes());
  std::byte* const rows = nullptr;
  std::byte* const words = nullptr;
  const ShardView shard = with.View(words, rows);
  for (int32_t slot = 0; slot < 3; ++slot) {
    const ShardView view = with.SlotView(words, rows, slot);
    EXPECT_EQ(view.duplicate_primary, shard.duplicate_primary);
    const auto offset = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
    EXPECT_EQ(offset(view.rows), (1 + slot) * without.rows_bytes());
    EXPECT_EQ(offset(view.rows) % kHostGranularityBytes, 0u);
    EXPECT_EQ(offset(view.row_weights) - offset(view.rows), without.row_weights_in_part());
    EXPECT_LE(offset(view.row_weights) + geometry.logical_rows() * sizeof(float),
              (2 + slot) * without.rows_bytes());
  }
}

TEST(ShardLayoutTest, RowsArePaddedByTheLeastThatFillsTheGranularity) {
  const Geometry geometry = {
      .ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
  ASSERT_EQ(geometry.logical_rows(), 18);
  struct Case {
    int32_t hidden;
    int64_t padded_rows;
  };
  // 18 rows up to a multiple of 4096 bytes over the largest power of two in a row's bytes.
  for (const Case& expected : {Case{8, 256}, Case{24, 256}, Case{2048, 18}, Case{1024, 18},
                               Case{512, 20}, Case{7168, 18}}) {
    const ShardLayout layout = ShardLayout::Create(geometry, expected.hidden);
    EXPECT_EQ(layout.padded_rows, expected.padded_rows) << expected.hidden;
    EXPECT_EQ(layout.padded_rows * expected.hidden * 2 % 4096, 0) << expected.hidden;
  }
}

// The control words lie first whatever the geometry: ranks that disagree on it find each other's.
TEST(ShardLayoutTest, ControlAndPlanningHeadersDependOnNoGeometry) {
  std::set<std::pair<size_t, size_t>> places;
  for (int32_t experts : {2, 4, 4000}) {
    for (int32_t tokens : {0, 100}) {
      const Geometry geometry = {.ranks = 2, .experts = experts, .tokens = tokens, .topk = 3};
      const ShardLayout layout = ShardLayout::Create(geometry, 64);
      places.emplace(layout.control, layout.planning);
    }
  }
  EXPECT_EQ(places.size(), 1u);
  EXPECT_EQ(places.begin()->first, 0u);
}

TEST(ShardLayoutTest, TheViewPointsIntoTheShard) {
  const Geometry geometry = {.ranks = 1, .experts = 2, .tokens = 4, .topk = 2, .slots = 1};
  const ShardLayout layout = ShardLayout::Create(geometry, 8);
  std::vector<std::byte> memory(layout.size_bytes);
  std::byte* const base = memory.data();
  const ShardView view = layout.View(base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.control), base + layout.control);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.planning), base + layout.planning);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.histograms), base + layout.histograms);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.row_weights), base + layout.row_weights);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.duplicate_primary), base + layout.duplicate_primary);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.duplicate_ordinal), base + layout.duplicate_ordinal);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.rows), base + layout.rows);
}

TEST(ControlPageTest, PositionsGrowWithSequenceAndPhase) {
  EXPECT_LT(BarrierPosition(0, Phase::kNone), BarrierPosition(1, Phase::kEntry));
  EXPECT_LT(BarrierPosition(1, Phase::kEntry), BarrierPosition(1, Phase::kExit));
  EXPECT_LT(BarrierPosition(1, Phase::kExit), BarrierPosition(2, Phase::kEntry));
  EXPECT_EQ(PositionSequence(BarrierPosition(17, Phase::kExit)), 17u);
}

}  // namespace
}  // namespace perigee
