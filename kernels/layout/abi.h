// The number that two processes must share before one may touch the other's memory. It changes with
// every change of a struct in kernels/layout, of the barrier's protocol, or of the planning rules.
#ifndef PERIGEE_KERNELS_LAYOUT_ABI_H_
#define PERIGEE_KERNELS_LAYOUT_ABI_H_

#include <cstdint>

namespace perigee {

inline constexpr uint32_t kDataPathAbi = 4;

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_ABI_H_
