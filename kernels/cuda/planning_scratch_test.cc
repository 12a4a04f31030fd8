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

TEST(RouteChunksTest, EveryTokenIsInOneChunk) {
  for (const Geometry& geometry : kGeometries) {
    const RouteChunks chunks = RouteChunks::Of(geometry);
    EXPECT_GE(chunks.count, 1);
    EXPECT_LE(chunks.count, RouteChunks::kMaxChunks);
    EXPECT_GE(int64_t{chunks.count} * chunks.tokens, geometry.tokens);
    EXPECT_LE(int64_t{chunks.count} * geometry.experts, RouteChunks::kMaxWords);
  }
}

TEST(PlanningScratchTest, PartsFollowEachOtherAndFit) {
  for (const Geometry& geometry : kGeometries) {
    size_t size_bytes = 0;
    PlacePlanningScratch(geometry, nullptr, &size_bytes);
    std::vector<std::byte> memory(size_bytes);
    size_t same_bytes = 0;
    const PlanningScratch scratch = PlacePlanningScratch(geometry, memory.data(), &same_bytes);
    EXPECT_EQ(same_bytes, size_bytes);
    const int32_t* const parts[] = {
        scratch.routes,    scratch.chunk_counts, scratch.counts,        scratch.before,
        scratch.transfers, scratch.remaining,    scratch.alloc,         scratch.remote,
        scratch.slot_of,   scratch.group_start,  scratch.duplicates_of, scratch.duplicate_start};
    for (size_t i = 1; i < std::size(parts); ++i) EXPECT_GE(parts[i], parts[i - 1]);
    const auto* end = reinterpret_cast<const int32_t*>(memory.data() + size_bytes);
    EXPECT_GE(end - scratch.duplicate_start, geometry.logical_rows());
    EXPECT_GE(scratch.counts - scratch.chunk_counts,
              int64_t{RouteChunks::Of(geometry).count} * geometry.experts);
  }
}

}  // namespace
}  // namespace perigee
