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

// A part (kernels/layout/weights_layout.h) of an expert at its home, and of a slot.
PERIGEE_HOST_DEVICE inline const std::byte* HomePart(const WeightsView& weights,
                                                     const Geometry& geometry, int32_t expert,
                                                     int part) {
  const int64_t index = expert % geometry.experts_per_rank();
  return weights.home[geometry.home_rank(expert)] + weights.home_layout.part(part) +
         index * weights.shape.part_bytes(part);
}
PERIGEE_HOST_DEVICE inline std::byte* SlotPart(const WeightsView& weights, int32_t slot, int part) {
  return weights.slots + weights.slot_layout.part(part) + slot * weights.shape.part_bytes(part);
}

// Of bf16.
PERIGEE_HOST_DEVICE inline DeviceMatrices HomeMatrices(const WeightsView& weights,
                                                       const Geometry& geometry, int32_t expert) {
  const auto matrix = [&](int part) {
    return reinterpret_cast<const BFloat16*>(HomePart(weights, geometry, expert, part));
  };
  return {matrix(0), matrix(1), matrix(2)};
}
PERIGEE_HOST_DEVICE inline DeviceMatrices SlotMatrices(const WeightsView& weights, int32_t slot) {
  const auto matrix = [&](int part) {
    return reinterpret_cast<const BFloat16*>(SlotPart(weights, slot, part));
  };
  return {matrix(0), matrix(1), matrix(2)};
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_WEIGHTS_VIEW_H_
