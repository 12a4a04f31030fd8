// Where expert weights lie in home and slot blocks, and checks of what a block holds.
#ifndef PERIGEE_KERNELS_HOST_WEIGHT_ACCESS_H_
#define PERIGEE_KERNELS_HOST_WEIGHT_ACCESS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

// One expert's matrices.
struct ExpertMatrices {
  const BFloat16* gate = nullptr;  // [H, H']
  const BFloat16* up = nullptr;    // [H, H']
  const BFloat16* down = nullptr;  // [H', H]
};

class WeightAccess {
 public:
  WeightAccess(const Geometry& geometry, const ExpertWeights& weights);

  // In the mapped home block of `expert`; of bf16.
  ExpertMatrices home(int32_t expert) const;
  ExpertMatrices slot(int32_t slot) const;
  // A part (kernels/layout/weights_layout.h) of an expert at its home, and of a slot.
  const std::byte* home_part(int32_t expert, int part) const;
  std::byte* slot_part(int32_t slot, int part) const;

  // A copy of what the block says now. Whoever loads a home block sets its version to 0 first and
  // writes the header last: so a block that holds the wanted header before and after its matrices
  // were read has not been changed in between.
  HomeHeader home_header(int32_t rank) const;
  bool HomeHolds(const HomeHeader& header) const;
  SlotTag tag(int32_t slot) const;
  void set_tag(int32_t slot, const SlotTag& tag) const;
  SlotTag WantedTag(int32_t expert) const;

 private:
  const Geometry& geometry_;
  const ExpertWeights& weights_;
  const WeightsLayout home_layout_;
  const WeightsLayout slot_layout_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_WEIGHT_ACCESS_H_
