// What the lanes of one warp do together.
#ifndef PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_
#define PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_

#include <cstdint>

namespace perigee {

// A value and where it was found, ordered by value, then the lowest index first.
__device__ inline uint64_t PackLargest(int32_t value, int32_t index) {
  // Signed values keep their order with the sign bit turned.
  const uint32_t ordered = static_cast<uint32_t>(value) ^ 0x80000000u;
  return uint64_t{ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}
__device__ inline int32_t PackedIndex(uint64_t packed) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(packed));
}
__device__ inline int32_t PackedValue(uint64_t packed) {
  return static_cast<int32_t>(static_cast<uint32_t>(packed >> 32) ^ 0x80000000u);
}

// The greatest of a warp's values, for all lanes.
__device__ inline uint64_t WarpMax(uint64_t value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_
