// The two products of the feed-forward, in tiles of 64 rows by 64 columns on the tensor cores:
// h = silu(x @ gate) * (x @ up), rounded to bf16, then h @ down. Sums in fp32. Any H and H' that
// are multiples of 8: what a tile reaches past a matrix is zero.
#ifndef PERIGEE_KERNELS_CUDA_RUN_EXPERTS_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_RUN_EXPERTS_KERNEL_CUH_

#include <cuda_bf16.h>
#include <mma.h>

#include <cstdint>

#include "kernels/algo/swiglu.h"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/run_experts_launch.h"

namespace perigee {

inline constexpr int kExpertThreads = 256;  // eight warps: 4 by 2, each 16 rows by 32 columns
inline constexpr int32_t kTileColumns = 64;
inline constexpr int32_t kTileDepth = 32;
// Rows of a shared tile are padded by one access, so that a column's lie in different banks.
inline constexpr int32_t kLeftPitch = kTileDepth + 8;
inline constexpr int32_t kRightPitch = kTileColumns + 8;
inline constexpr int32_t kSumPitch = kTileColumns + 4;

using LeftFragment = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16,
                                            nvcuda::wmma::row_major>;
using RightFragment = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16,
                                             nvcuda::wmma::row_major>;
using SumFragment = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

// A part of a row-major matrix in global memory; elements past rows and columns read as zero.
struct MatrixPart {
  const BFloat16* data = nullptr;
  int32_t rows = 0;
  int32_t columns = 0;  // of the part
  int64_t pitch = 0;    // elements from row to row
};

template <int kRows, int kColumns, int kPitch>
__device__ void LoadTile(const MatrixPart& part, BFloat16* tile) {
  constexpr int kVectors = kColumns / kVectorElements;
  for (int i = threadIdx.x; i < kRows * kVectors; i += kExpertThreads) {
    const int row = i / kVectors;
    const int column = i % kVectors * kVectorElements;
    uint4 vector = make_uint4(0, 0, 0, 0);
    if (row < part.rows && column < part.columns) {
      vector = *reinterpret_cast<const uint4*>(part.data + row * part.pitch + column);
    }
    *reinterpret_cast<uint4*>(tile + row * kPitch + column) = vector;
  }
}

struct WarpPlace {
  int row = 0;
  int column = 0;
};
__device__ inline WarpPlace PlaceOfWarp() {
  const int warp = threadIdx.x / 32;
  return {warp / 2 * 16, warp % 2 * 32};
}

// sums [2] += left [64, depth] @ right [depth, 64], this warp's two 16 by 16 parts.
__device__ inline void MultiplyTiles(const BFloat16* left, const BFloat16* right,
                                     SumFragment* sums) {
  const WarpPlace place = PlaceOfWarp();
  const auto* a = reinterpret_cast<const __nv_bfloat16*>(left) + place.row * kLeftPitch;
  const auto* b = reinterpret_cast<const __nv_bfloat16*>(right) + place.column;
#pragma unroll
  for (int depth = 0; depth < kTileDepth; depth += 16) {
    LeftFragment a_part;
    nvcuda::wmma::load_matrix_sync(a_part, a + depth, kLeftPitch);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      RightFragment b_part;
      nvcuda::wmma::load_matrix_sync(b_part, b + depth * kRightPitch + 16 * i, kRightPitch);
      nvcuda::wmma::mma_sync(sums[i], a_part, b_part, sums[i]);
    }
  }
}

__device__ inline void StoreSums(const SumFragment* sums, float* tile) {
  const WarpPlace place = PlaceOfWarp();
  for (int i = 0; i < 2; ++i) {
    nvcuda::wmma::store_matrix_sync(tile + place.row * kSumPitch + place.column + 16 * i, sums[i],
                                    kSumPitch, nvcuda::wmma::mem_row_major);
  }
}

__device__ inline void ClearSums(SumFragment* sums) {
  for (int i = 0; i < 2; ++i) nvcuda::wmma::fill_fragment(sums[i], 0.0f);
}

// Of `rows` [count, columns] the part from column `first`; of a matrix likewise from row
// `first_row`.
__device__ inline MatrixPart LeftPart(const BFloat16* rows, const ExpertTile& tile, int32_t columns,
                                      int32_t first) {
  return {rows + int64_t{tile.begin} * columns + first, tile.count, columns - first, columns};
}
__device__ inline MatrixPart RightPart(const BFloat16* matrix, int32_t rows, int32_t columns,
                                       int32_t first_row, int32_t first_column) {
  return {matrix + int64_t{first_row} * columns + first_column, rows - first_row,
          columns - first_column, columns};
}

// blockIdx.x: columns of h; tiles are taken blockIdx.y, + gridDim.y, ...
__global__ void __launch_bounds__(kExpertThreads)
    GateUpKernel(PathView path, ExpertsArguments arguments) {
  if (Stopped(path)) return;
  __shared__ __align__(16) BFloat16 left[kTileRows * kLeftPitch];
  __shared__ __align__(16) BFloat16 gate[kTileDepth * kRightPitch];
  __shared__ __align__(16) BFloat16 up[kTileDepth * kRightPitch];
  __shared__ __align__(16) float sums[2][kTileRows * kSumPitch];
  const int32_t depth = path.hidden;
  const int32_t columns = arguments.weights.shape.intermediate;
  const int32_t first_column = static_cast<int32_t>(blockIdx.x) * kTileColumns;
  for (int32_t i = blockIdx.y; i < *arguments.tile_count; i += gridDim.y) {
    const ExpertTile tile = arguments.tiles[i];
    SumFragment gate_sums[2];
    SumFragment up_sums[2];
    ClearSums(gate_sums);
    ClearSums(up_sums);
    for (int32_t k = 0; k < depth; k += kTileDepth) {
      LoadTile<kTileRows, kTileDepth, kLeftPitch>(LeftPart(arguments.rows, tile, depth, k), left);
      LoadTile<kTileDepth, kTileColumns, kRightPitch>(
          RightPart(tile.matrices.gate, depth, columns, k, first_column), gate);
      LoadTile<kTileDepth, kTileColumns, kRightPitch>(
          RightPart(tile.matrices.up, depth, columns, k, first_column), up);
      __syncthreads();
      MultiplyTiles(left, gate, gate_sums);
      MultiplyTiles(left, up, up_sums);
      __syncthreads();
    }
    StoreSums(gate_sums, sums[0]);
    StoreSums(up_sums, sums[1]);
    __syncthreads();
    for (int at = threadIdx.x; at < kTileRows * kTileColumns; at += kExpertThreads) {
      const int32_t row = at / kTileColumns;
      const int32_t column = at % kTileColumns;
      if (row >= tile.count || first_column + column >= columns) continue;
      arguments.h[int64_t{tile.begin + row} * columns + first_column + column] =
          SwiGlu(sums[0][row * kSumPitch + column], sums[1][row * kSumPitch + column]);
    }
    __syncthreads();
  }
}

// blockIdx.x: columns of the output.
__global__ void __launch_bounds__(kExpertThreads)
    DownKernel(PathView path, ExpertsArguments arguments) {
  if (Stopped(path)) return;
  __shared__ __align__(16) BFloat16 left[kTileRows * kLeftPitch];
  __shared__ __align__(16) BFloat16 down[kTileDepth * kRightPitch];
  __shared__ __align__(16) float tile_sums[kTileRows * kSumPitch];
  const int32_t depth = arguments.weights.shape.intermediate;
  const int32_t columns = path.hidden;
  const int32_t first_column = static_cast<int32_t>(blockIdx.x) * kTileColumns;
  for (int32_t i = blockIdx.y; i < *arguments.tile_count; i += gridDim.y) {
    const ExpertTile tile = arguments.tiles[i];
    SumFragment sums[2];
    ClearSums(sums);
    for (int32_t k = 0; k < depth; k += kTileDepth) {
      LoadTile<kTileRows, kTileDepth, kLeftPitch>(LeftPart(arguments.h, tile, depth, k), left);
      LoadTile<kTileDepth, kTileColumns, kRightPitch>(
          RightPart(tile.matrices.down, depth, columns, k, first_column), down);
      __syncthreads();
      MultiplyTiles(left, down, sums);
      __syncthreads();
    }
    StoreSums(sums, tile_sums);
    __syncthreads();
    for (int at = threadIdx.x; at < kTileRows * kTileColumns; at += kExpertThreads) {
      const int32_t row = at / kTileColumns;
      const int32_t column = at % kTileColumns;
      if (row >= tile.count || first_column + column >= columns) continue;
      float sum = tile_sums[row * kSumPitch + column];
      if (arguments.row_weights != nullptr) sum *= arguments.row_weights[tile.begin + row];
      arguments.output[int64_t{tile.begin + row} * columns + first_column + column] =
          ToBFloat16(sum);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kRowThreads)
    ZeroOutputPaddingKernel(PathView path, ExpertsArguments arguments) {
  if (Stopped(path)) return;
  const int64_t vectors = path.hidden / kVectorElements;
  for (int32_t group = blockIdx.x; group < path.geometry.groups(); group += gridDim.x) {
    const DeviceGroupRows rows = RowsOfGroup(arguments.plan, group);
    uint4* padding = Vectors(arguments.output, rows.filled, path.hidden);
    for (int64_t i = threadIdx.x; i < (rows.end - rows.filled) * vectors; i += blockDim.x) {
      padding[i] = make_uint4(0, 0, 0, 0);
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RUN_EXPERTS_KERNEL_CUH_
