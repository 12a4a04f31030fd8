// What the threads of one block do together.
#ifndef PERIGEE_KERNELS_CUDA_BLOCK_ALGORITHMS_CUH_
#define PERIGEE_KERNELS_CUDA_BLOCK_ALGORITHMS_CUH_

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

// The greatest of all threads' values, for all threads. `shared` [blockDim.x / 32] may be used
// again after it.
__device__ inline uint64_t BlockMax(uint64_t value, uint64_t* shared) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0;
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  __syncthreads();
  return value;
}

// The index of the greatest of values [count], the lowest of several; what it holds in *value.
__device__ inline int32_t BlockArgMax(const int32_t* values, int32_t count, uint64_t* shared,
                                      int32_t* value) {
  uint64_t best = 0;
  for (int32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const uint64_t packed = PackLargest(values[i], i);
    best = packed > best ? packed : best;
  }
  best = BlockMax(best, shared);
  *value = PackedValue(best);
  return PackedIndex(best);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_BLOCK_ALGORITHMS_CUH_
