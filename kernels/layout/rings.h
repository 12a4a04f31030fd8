// How many slots rings of output slots may have (kernels/buffer_rings.h).
#ifndef PERIGEE_KERNELS_LAYOUT_RINGS_H_
#define PERIGEE_KERNELS_LAYOUT_RINGS_H_

#include <cstdint>

namespace perigee {

inline constexpr int32_t kMaxRingSlots = 64;
// 0: no ring.
constexpr bool IsRingCount(int32_t slots) { return slots >= 0 && slots <= kMaxRingSlots; }

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_RINGS_H_
