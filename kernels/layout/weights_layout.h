// How one layer's expert weights lie in memory: in a home block (a rank's own E/R experts, read by
// peers) and in the slot block (B replicas of remote experts, this rank's only).
#ifndef PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_
#define PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"
#include "kernels/layout/walk.h"

namespace perigee {

struct WeightsShape {
  int32_t hidden = 0;        // H, a multiple of 8
  int32_t intermediate = 0;  // H', a multiple of 8

  friend constexpr bool operator==(const WeightsShape&, const WeightsShape&) = default;
  // Elements of one expert's gate [H, H'], of its up [H, H'] and of its down [H', H].
  PERIGEE_HOST_DEVICE constexpr int64_t matrix_elements() const {
    return static_cast<int64_t>(hidden) * intermediate;
  }
};

// First in a home block: what the block holds. version 0 means nothing has been loaded.
struct HomeHeader {
  uint64_t version = 0;
  int32_t layer = -1;
  uint32_t reserved = 0;
};
static_assert(sizeof(HomeHeader) == 16);

// What a slot holds. version 0 means nothing.
struct SlotTag {
  uint64_t version = 0;
  int32_t layer = -1;
  int32_t expert = -1;
  friend constexpr bool operator==(const SlotTag&, const SlotTag&) = default;
};
static_assert(sizeof(SlotTag) == 16);

// Offsets in bytes. A home block of n experts and a slot block of n slots differ only in what comes
// first: one HomeHeader, or n SlotTags. Matrices of one kind are contiguous: [n, rows, columns]
// bf16.
struct WeightsLayout {
  size_t header = 0;
  size_t gate = 0;
  size_t up = 0;
  size_t down = 0;
  size_t size_bytes = 0;

  PERIGEE_HOST_DEVICE static constexpr WeightsLayout Home(const WeightsShape& shape,
                                                          int32_t experts) {
    LayoutWalk walk;
    WeightsLayout layout;
    layout.header = walk.Place<HomeHeader>(1);
    return Matrices(layout, walk, shape, experts);
  }
  PERIGEE_HOST_DEVICE static constexpr WeightsLayout Slots(const WeightsShape& shape,
                                                           int32_t slots) {
    LayoutWalk walk;
    WeightsLayout layout;
    layout.header = walk.Place<SlotTag>(slots);
    return Matrices(layout, walk, shape, slots);
  }

 private:
  static constexpr size_t kGranularity = 4096;
  PERIGEE_HOST_DEVICE static constexpr WeightsLayout Matrices(WeightsLayout layout, LayoutWalk walk,
                                                              const WeightsShape& shape,
                                                              int32_t count) {
    layout.gate = walk.Place<BFloat16>(shape.matrix_elements() * count);
    layout.up = walk.Place<BFloat16>(shape.matrix_elements() * count);
    layout.down = walk.Place<BFloat16>(shape.matrix_elements() * count);
    layout.size_bytes = walk.size_bytes(kGranularity);
    return layout;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_
