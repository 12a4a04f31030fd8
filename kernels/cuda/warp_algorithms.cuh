// What the lanes of one warp do together.
#ifndef PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_
#define PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_

#include <cstdint>

namespace perigee {

// A value and where it was found.
struct Found {
  int32_t value = INT32_MIN;
  int32_t index = INT32_MAX;
};
// The greatest of all lanes', of equals the one with the lowest index, for all lanes.
__device__ inline Found WarpLargest(const Found& mine) {
  Found found;
  found.value = __reduce_max_sync(0xffffffffu, mine.value);
  found.index = __reduce_min_sync(0xffffffffu, mine.value == found.value ? mine.index : INT32_MAX);
  return found;
}
// Keeps the greater of two of one lane; `other` has the higher index.
__device__ inline void KeepLargest(Found& found, const Found& other) {
  if (other.value > found.value) found = other;
}

// The sum of the lanes up to and with this one.
__device__ inline int32_t WarpPrefixSum(int32_t value) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for (int offset = 1; offset < 32; offset *= 2) {
    const int32_t lower = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += lower;
  }
  return value;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_WARP_ALGORITHMS_CUH_
