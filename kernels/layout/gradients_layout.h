// How the slot gradients of one rank lie in memory: what its experts' backward has summed up for
// remote experts, in the shapes of the weights in the slots, in fp32. Peers read the block, its
// owner alone writes it.
#ifndef PERIGEE_KERNELS_LAYOUT_GRADIENTS_LAYOUT_H_
#define PERIGEE_KERNELS_LAYOUT_GRADIENTS_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/layout/walk.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

// Offsets in bytes. Matrices of one kind are contiguous: [count, rows, columns] fp32.
struct GradientsLayout {
  size_t gate = 0;
  size_t up = 0;
  size_t down = 0;
  size_t size_bytes = 0;

  PERIGEE_HOST_DEVICE static constexpr GradientsLayout Create(const WeightsShape& shape,
                                                              int32_t count) {
    constexpr size_t kGranularity = 4096;
    LayoutWalk walk;
    GradientsLayout layout;
    layout.gate = walk.Place<float>(shape.matrix_elements() * count);
    layout.up = walk.Place<float>(shape.matrix_elements() * count);
    layout.down = walk.Place<float>(shape.matrix_elements() * count);
    layout.size_bytes = walk.size_bytes(kGranularity);
    return layout;
  }
};

// What one rank keeps of a buffer's gradients, in one piece: its slot gradients first, one pool for
// all layers, then the gradients of its own experts, layer by layer.
struct GradientBlockLayout {
  GradientsLayout slots;
  GradientsLayout home;   // of one layer
  size_t first_home = 0;  // offset of layer 0, in bytes
  size_t size_bytes = 0;

  PERIGEE_HOST_DEVICE constexpr size_t home_offset(int32_t layer) const {
    return first_home + static_cast<size_t>(layer) * home.size_bytes;
  }
  PERIGEE_HOST_DEVICE static constexpr GradientBlockLayout Create(const WeightsShape& shape,
                                                                  int32_t slots, int32_t experts,
                                                                  int32_t layers) {
    GradientBlockLayout layout;
    layout.slots = GradientsLayout::Create(shape, slots);
    layout.home = GradientsLayout::Create(shape, experts);
    layout.first_home = layout.slots.size_bytes;
    layout.size_bytes = layout.home_offset(layers);
    return layout;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_GRADIENTS_LAYOUT_H_
