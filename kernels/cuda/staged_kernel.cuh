// Kernels of staged_launch.h. Their sums have the bits of kernels/algo's (vector_sum.cuh), so those
// of the host backend and of the other transport.
#ifndef PERIGEE_KERNELS_CUDA_STAGED_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_STAGED_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/staged_launch.h"
#include "kernels/cuda/vector_sum.cuh"

namespace perigee {

inline constexpr int kFloatThreads = 512;

template <typename List>
__device__ inline int64_t PlaceIn(const List& list, int64_t i) {
  return list.index == nullptr ? i : list.index[i];
}

// This thread among all of the grid's, and how many these are.
__device__ inline int64_t GridThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t GridThreads() { return int64_t{gridDim.x} * blockDim.x; }

// A warp a row at a time.
__global__ void __launch_bounds__(kRowThreads)
    CopyRowsKernel(RowListView to, RowListView from, int64_t count, int32_t hidden) {
  const int32_t vectors = hidden / kVectorElements;
  for (int64_t i = GridWarp(); i < count; i += GridWarps()) {
    uint4* const row = Vectors(to.rows, PlaceIn(to, i), hidden);
    if (from.rows != nullptr) {
      CopyVectors(row, Vectors(from.rows, PlaceIn(from, i), hidden), vectors);
      continue;
    }
    for (int32_t at = LaneId(); at < vectors; at += 32) row[at] = make_uint4(0, 0, 0, 0);
  }
}

__global__ void __launch_bounds__(kFloatThreads)
    CopyFloatsKernel(FloatListView to, FloatListView from, int64_t count) {
  for (int64_t i = GridThread(); i < count; i += GridThreads()) {
    to.values[PlaceIn(to, i)] = from.values == nullptr ? 0.0f : from.values[PlaceIn(from, i)];
  }
}

// A warp a sum at a time. A lane has read a vector of every row before it writes there.
__global__ void __launch_bounds__(kRowThreads) SumRowsKernel(RowSumsView sums, int32_t hidden) {
  const int32_t vectors = hidden / kVectorElements;
  for (int64_t i = GridWarp(); i < sums.count; i += GridWarps()) {
    const int32_t begin = i == 0 ? 0 : sums.ends[i - 1];
    const int32_t end = sums.ends[i];
    uint4* const to = Vectors(sums.to.rows, PlaceIn(sums.to, i), hidden);
    for (int32_t at = LaneId(); at < vectors; at += 32) {
      if (begin == end) {
        to[at] = make_uint4(0, 0, 0, 0);
        continue;
      }
      VectorSum sum;
      sum.Start(Vectors(sums.from, sums.rows[begin], hidden)[at]);
      for (int32_t term = begin + 1; term < end; ++term) {
        sum.Add(Vectors(sums.from, sums.rows[term], hidden)[at]);
      }
      to[at] = sum.Rounded(end - begin > 1);
    }
  }
}

__global__ void __launch_bounds__(kFloatThreads)
    AddFloatsKernel(float* to, const float* from, int64_t count) {
  for (int64_t i = GridThread(); i < count; i += GridThreads()) to[i] += from[i];
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_STAGED_KERNEL_CUH_
