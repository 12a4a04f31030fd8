// One layer's expert weights as kernels see them, and which of them a group computes with.
#ifndef PERIGEE_KERNELS_CUDA_WEIGHTS_VIEW_H_
#define PERIGEE_KERNELS_CUDA_WEIGHTS_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

struct WeightsView {
  const std::byte* home[kControlPeers] = {};  // [R] home blocks as mapped by this rank
  std::byte* slots = nullptr;
  WeightsLayout home_layout;
  WeightsLayout slot_layout;
  WeightsShape shape;
  uint64_t version = 0;
  int32_t layer = 0;
};

// One expert's matrices: gate and up [H, H'], down [H', H].
struct DeviceMatrices {
  const BFloat16* gate = nullptr;
  const BFloat16* up = nullptr;
  const BFloat16* down = nullptr;
};

PERIGEE_HOST_DEVICE inline const BFloat16* MatrixAt(const std::byte* block, size_t offset,
                                                    const WeightsShape& shape, int64_t index) {
  return reinterpret_cast<const BFloat16*>(block + offset) + index * shape.matrix_elements();
}
PERIGEE_HOST_DEVICE inline DeviceMatrices HomeMatrices(const WeightsView& weights,
                                                       const Geometry& geometry, int32_t expert) {
  const std::byte* block = weights.home[geometry.home_rank(expert)];
  const int64_t index = expert % geometry.experts_per_rank();
  const WeightsLayout& layout = weights.home_layout;
  return {MatrixAt(block, layout.gate, weights.shape, index),
          MatrixAt(block, layout.up, weights.shape, index),
          MatrixAt(block, layout.down, weights.shape, index)};
}
PERIGEE_HOST_DEVICE inline DeviceMatrices SlotMatrices(const WeightsView& weights, int32_t slot) {
  const WeightsLayout& layout = weights.slot_layout;
  return {MatrixAt(weights.slots, layout.gate, weights.shape, slot),
          MatrixAt(weights.slots, layout.up, weights.shape, slot),
          MatrixAt(weights.slots, layout.down, weights.shape, slot)};
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_WEIGHTS_VIEW_H_
