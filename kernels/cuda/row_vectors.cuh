// Rows of bf16 moved by whole warps, 16 bytes a lane. H is a multiple of 8, so a row is a whole
// number of vectors; rows begin at multiples of 16 bytes (checked before launch).
#ifndef PERIGEE_KERNELS_CUDA_ROW_VECTORS_CUH_
#define PERIGEE_KERNELS_CUDA_ROW_VECTORS_CUH_

#include <cstdint>

#include "kernels/algo/rows.h"
#include "kernels/common/bfloat16.h"

namespace perigee {

inline constexpr int kVectorElements = 8;
inline constexpr int kRowThreads = 512;
// Loads in flight per lane before the first store.
inline constexpr int kVectorsInFlight = 4;

__device__ inline int32_t LaneId() { return static_cast<int32_t>(threadIdx.x % 32); }
// This warp among all of the grid's, and how many these are.
__device__ inline int64_t GridWarp() {
  return int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
}
__device__ inline int64_t GridWarps() { return int64_t{gridDim.x} * (blockDim.x / 32); }

__device__ inline const uint4* Vectors(const BFloat16* rows, int64_t row, int32_t hidden) {
  return reinterpret_cast<const uint4*>(RowAt(rows, row, hidden));
}
__device__ inline uint4* Vectors(BFloat16* rows, int64_t row, int32_t hidden) {
  return reinterpret_cast<uint4*>(RowAt(rows, row, hidden));
}

// Reads a row of `count` vectors once; store(i, vector) is called for each of its vectors by the
// lane that holds it.
template <typename Store>
__device__ void ForEachVector(const uint4* row, int32_t count, const Store& store) {
  for (int32_t first = LaneId(); first < count; first += 32 * kVectorsInFlight) {
    uint4 vectors[kVectorsInFlight];
#pragma unroll
    for (int i = 0; i < kVectorsInFlight; ++i) {
      if (first + 32 * i < count) vectors[i] = row[first + 32 * i];
    }
#pragma unroll
    for (int i = 0; i < kVectorsInFlight; ++i) {
      if (first + 32 * i < count) store(first + 32 * i, vectors[i]);
    }
  }
}

__device__ inline void CopyVectors(uint4* to, const uint4* from, int32_t count) {
  ForEachVector(from, count, [to](int32_t i, const uint4& vector) { to[i] = vector; });
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ROW_VECTORS_CUH_
