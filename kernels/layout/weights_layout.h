// How one layer's expert weights lie in memory: in a home block (a rank's own E/R experts, read by
// peers) and in the slot block (B replicas of remote experts, this rank's only).
#ifndef PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_
#define PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/layout/walk.h"

namespace perigee {

// What an element is. Backends compute with bf16 alone; the others they move.
enum class WeightFormat : uint32_t {
  kBFloat16 = 0,
  k8Bit = 1,   // one byte, whatever it means to whoever computes with it
  kMxfp4 = 2,  // two in a byte, along the last dimension
};
// What one scale is for: a block of so many rows and columns of 8-bit elements (fp32), or so many
// elements along the last dimension of MXFP4 (one byte, e8m0). The last of a row or column may be
// smaller.
inline constexpr int32_t k8BitScaleBlock = 128;
inline constexpr int32_t kMxfp4ScaleBlock = 32;

// Parts of an expert's weights: its matrices gate, up and down, then the scales of each.
inline constexpr int kWeightMatrices = 3;
inline constexpr int kWeightParts = 2 * kWeightMatrices;

struct WeightsShape {
  int32_t hidden = 0;        // H, a multiple of 8
  int32_t intermediate = 0;  // H', a multiple of 8
  WeightFormat format = WeightFormat::kBFloat16;
  bool scales = false;  // block scales come with the matrices; never with bf16

  friend constexpr bool operator==(const WeightsShape&, const WeightsShape&) = default;
  // Elements of one expert's gate [H, H'], of its up [H, H'] and of its down [H', H].
  PERIGEE_HOST_DEVICE constexpr int64_t matrix_elements() const {
    return static_cast<int64_t>(hidden) * intermediate;
  }
  // Of gate and up, and of down.
  PERIGEE_HOST_DEVICE constexpr int32_t rows(int part) const {
    return part % kWeightMatrices == 2 ? intermediate : hidden;
  }
  PERIGEE_HOST_DEVICE constexpr int32_t columns(int part) const {
    return part % kWeightMatrices == 2 ? hidden : intermediate;
  }
  // Rows and columns of a matrix's scales.
  PERIGEE_HOST_DEVICE constexpr int32_t scale_rows(int part) const {
    return format == WeightFormat::kMxfp4 ? rows(part) : Blocks(rows(part), k8BitScaleBlock);
  }
  PERIGEE_HOST_DEVICE constexpr int32_t scale_columns(int part) const {
    return Blocks(columns(part),
                  format == WeightFormat::kMxfp4 ? kMxfp4ScaleBlock : k8BitScaleBlock);
  }
  // Of one expert; of a matrix a multiple of 16; 0 of scales that there are not.
  PERIGEE_HOST_DEVICE constexpr int64_t part_bytes(int part) const {
    if (part < kWeightMatrices) {
      return format == WeightFormat::kBFloat16 ? matrix_elements() * 2
             : format == WeightFormat::k8Bit   ? matrix_elements()
                                               : matrix_elements() / 2;
    }
    if (!scales) return 0;
    const int64_t scale_bytes = format == WeightFormat::kMxfp4 ? 1 : 4;
    return scale_bytes * scale_rows(part) * scale_columns(part);
  }

 private:
  PERIGEE_HOST_DEVICE static constexpr int32_t Blocks(int32_t elements, int32_t block) {
    return (elements + block - 1) / block;
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
// first: one HomeHeader, or n SlotTags. Parts of one kind are contiguous: [n, rows, columns].
struct WeightsLayout {
  size_t header = 0;
  size_t gate = 0;
  size_t up = 0;
  size_t down = 0;
  size_t scales[kWeightMatrices] = {};  // of gate, up, down
  size_t size_bytes = 0;

  PERIGEE_HOST_DEVICE constexpr size_t part(int part) const {
    return part == 0 ? gate : part == 1 ? up : part == 2 ? down : scales[part - kWeightMatrices];
  }

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
    layout.gate = walk.Place<std::byte>(shape.part_bytes(0) * count);
    layout.up = walk.Place<std::byte>(shape.part_bytes(1) * count);
    layout.down = walk.Place<std::byte>(shape.part_bytes(2) * count);
    for (int i = 0; i < kWeightMatrices; ++i) {
      layout.scales[i] = walk.Place<std::byte>(shape.part_bytes(kWeightMatrices + i) * count);
    }
    layout.size_bytes = walk.size_bytes(kGranularity);
    return layout;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_WEIGHTS_LAYOUT_H_
