#include "kernels/layout/client_arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(ClientArenaLayout, PartsFollowEachOtherWithoutOverlap) {
  for (const int32_t slots : {0, 3}) {
    const Geometry geometry{.ranks = 2, .experts = 6, .tokens = 5, .topk = 3, .slots = slots};
    const ClientArenaLayout layout = ClientArenaLayout::Create(geometry, /*hidden=*/8, 4096);
    const std::vector<std::pair<size_t, size_t>> parts = {
        {layout.hidden, 5 * 8 * 2},
        {layout.topk_experts, 5 * 3 * 4},
        {layout.route_weights, 5 * 3 * 4},
        {layout.output, 5 * 8 * 2},
        {layout.gathered_weights, 5 * 3 * 4},
        {layout.plan_sequence, 8},
        {layout.dst, 5 * 3 * 4},
        {layout.cu_seqlens, (6 + size_t(slots)) * 4},
        {layout.zero_fill_ranges, (6 + size_t(slots)) * 8},
        {layout.experts_to_copy, 2 * size_t(slots) * 4},
        {layout.load, 2 * 4},
        {layout.home_load, 2 * 4}};
    size_t end = 0;
    for (const auto& [offset, bytes] : parts) {
      EXPECT_GE(offset, end);
      EXPECT_EQ(offset % 256, 0u);
      end = offset + bytes;
    }
    EXPECT_GE(layout.size_bytes, end);
    EXPECT_EQ(layout.size_bytes % 4096, 0u);

    std::vector<std::byte> memory(layout.size_bytes);
    const ClientArenaView view = layout.View(memory.data());
    EXPECT_EQ(reinterpret_cast<std::byte*>(view.output) - memory.data(),
              static_cast<std::ptrdiff_t>(layout.output));
    EXPECT_EQ(reinterpret_cast<std::byte*>(view.plan.home_load) - memory.data(),
              static_cast<std::ptrdiff_t>(layout.home_load));
  }
}

}  // namespace
}  // namespace perigee
