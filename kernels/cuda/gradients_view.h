// One layer's expert gradients as kernels see them.
#ifndef PERIGEE_KERNELS_CUDA_GRADIENTS_VIEW_H_
#define PERIGEE_KERNELS_CUDA_GRADIENTS_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/layout/control_page.h"

namespace perigee {

// Matrices of one kind: gate, up or down.
struct GradientKind {
  float* home = nullptr;  // [E/R, elements] of this rank's own experts
  size_t offset = 0;      // in a slot block, in bytes, of [B, elements]
};

struct GradientsView {
  const std::byte* slots[kControlPeers] = {};  // [R] slot gradients as mapped by this rank
  std::byte* own_slots = nullptr;
  GradientKind kinds[3];
  int64_t matrix_elements = 0;  // a multiple of 64
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_GRADIENTS_VIEW_H_
