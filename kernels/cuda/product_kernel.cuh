// A product of matrices in tiles of 128 rows by 128 columns on the tensor cores, with two
// epilogues: a tile's rows go to memory of this rank, or each to its places on any rank. What a
// tile reaches past a matrix is zero.
//
// Loads run ahead of the products by kProductStages - 1 steps of the depth. A finished tile passes
// through shared memory, so that half a warp stores 256 bytes in a row; the other block on the SM
// computes meanwhile.
// Source of the fragments' layouts: PTX ISA, mma.m16n8k16 and ldmatrix.
#ifndef PERIGEE_KERNELS_CUDA_PRODUCT_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PRODUCT_KERNEL_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/algo/rows.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

inline constexpr int kProductThreads = 256;  // eight warps: 2 by 4, each 64 rows by 32 columns
inline constexpr int kProductBlocksOfSm = 2;
inline constexpr int32_t kProductRows = 128;
inline constexpr int32_t kProductColumns = 128;
inline constexpr int32_t kProductDepth = 32;
inline constexpr int kProductStages = 4;
// Rows of a shared tile are padded by one access: eight rows of a fragment lie in different banks.
inline constexpr int32_t kProductLeftPitch = kProductDepth + kVectorElements;
inline constexpr int32_t kProductRightPitch = kProductColumns + kVectorElements;

struct ProductStage {
  BFloat16 a[kProductRows * kProductLeftPitch];
  BFloat16 b[kProductDepth * kProductRightPitch];
};
union ProductShared {
  ProductStage stages[kProductStages];
  BFloat16 tile[kProductRows * kProductRightPitch];
};
static_assert(kProductBlocksOfSm * sizeof(ProductShared) < 220 * 1024);

// Of one tile: where it begins.
struct ProductTile {
  int32_t row = 0;
  int32_t column = 0;
};

// 16 bytes, or zeros where nothing is there; `from` is readable all the same.
__device__ inline void CopyVectorAsync(BFloat16* to, const BFloat16* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void LoadProductStage(const ProductArguments& arguments, int32_t hidden,
                                        const ProductTile& tile, int32_t depth,
                                        ProductStage* stage) {
  constexpr int kLeftVectors = kProductDepth / kVectorElements;
  for (int i = threadIdx.x; i < kProductRows * kLeftVectors; i += kProductThreads) {
    const int32_t row = i / kLeftVectors;
    const int32_t column = i % kLeftVectors * kVectorElements;
    const bool is_there =
        tile.row + row < arguments.token_count && depth + column < arguments.depth;
    const BFloat16* from = arguments.a;
    if (is_there) from = RowAt(from, tile.row + row, arguments.depth) + depth + column;
    CopyVectorAsync(stage->a + row * kProductLeftPitch + column, from, is_there);
  }
  constexpr int kRightVectors = kProductColumns / kVectorElements;
  for (int i = threadIdx.x; i < kProductDepth * kRightVectors; i += kProductThreads) {
    const int32_t row = i / kRightVectors;
    const int32_t column = i % kRightVectors * kVectorElements;
    const bool is_there = depth + row < arguments.depth && tile.column + column < hidden;
    const BFloat16* from = arguments.b;
    if (is_there) from = RowAt(from, depth + row, hidden) + tile.column + column;
    CopyVectorAsync(stage->b + row * kProductRightPitch + column, from, is_there);
  }
}

// 16 by 16 elements, as the left factor of a fragment product.
__device__ inline void LoadLeft(const BFloat16* part, uint32_t* fragment) {
  const BFloat16* row = part + LaneId() % 16 * kProductLeftPitch + LaneId() / 16 * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(SharedAddress(row)));
}
// 16 by 16 elements, as two right factors: columns 0 to 7 in the first two words.
__device__ inline void LoadRight(const BFloat16* part, uint32_t* fragment) {
  const BFloat16* row = part + LaneId() % 16 * kProductRightPitch + LaneId() / 16 * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(SharedAddress(row)));
}
__device__ inline void MultiplyFragments(const uint32_t* a, const uint32_t* b, float* sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One warp's 64 by 32 elements: 4 by 4 products of 16 by 8.
struct ProductSums {
  static constexpr int kHigh = 4;
  static constexpr int kWide = 4;
  float sums[kHigh][kWide][4];
};

__device__ inline int32_t ProductWarpRow() { return static_cast<int32_t>(threadIdx.x) / 128 * 64; }
__device__ inline int32_t ProductWarpColumn() {
  return static_cast<int32_t>(threadIdx.x) / 32 % 4 * 32;
}

__device__ inline void MultiplyStage(const ProductStage& stage, ProductSums& sums) {
#pragma unroll
  for (int depth = 0; depth < kProductDepth; depth += 16) {
    uint32_t a[ProductSums::kHigh][4];
    uint32_t b[ProductSums::kWide / 2][4];
#pragma unroll
    for (int i = 0; i < ProductSums::kHigh; ++i) {
      LoadLeft(stage.a + (ProductWarpRow() + 16 * i) * kProductLeftPitch + depth, a[i]);
    }
#pragma unroll
    for (int j = 0; j < ProductSums::kWide / 2; ++j) {
      LoadRight(stage.b + depth * kProductRightPitch + ProductWarpColumn() + 16 * j, b[j]);
    }
#pragma unroll
    for (int i = 0; i < ProductSums::kHigh; ++i) {
#pragma unroll
      for (int j = 0; j < ProductSums::kWide; ++j) {
        MultiplyFragments(a[i], b[j / 2] + j % 2 * 2, sums.sums[i][j]);
      }
    }
  }
}

// All threads; the block's tile is computed and nothing of its stages is used any more.
__device__ inline void MultiplyTile(const ProductArguments& arguments, int32_t hidden,
                                    const ProductTile& tile, ProductStage* stages,
                                    ProductSums& sums) {
  const int32_t steps = (arguments.depth + kProductDepth - 1) / kProductDepth;
#pragma unroll
  for (int step = 0; step < kProductStages - 1; ++step) {
    if (step < steps) {
      LoadProductStage(arguments, hidden, tile, step * kProductDepth, &stages[step]);
    }
    CommitCopies();
  }
#pragma unroll 1
  for (int32_t step = 0; step < steps; ++step) {
    AwaitCopies<kProductStages - 2>();
    // Also: all warps have done with the stage that is loaded next.
    __syncthreads();
    const int32_t ahead = step + kProductStages - 1;
    if (ahead < steps) {
      LoadProductStage(arguments, hidden, tile, ahead * kProductDepth,
                       &stages[ahead % kProductStages]);
    }
    CommitCopies();
    MultiplyStage(stages[step % kProductStages], sums);
  }
  AwaitCopies<0>();
  __syncthreads();
}

__device__ inline void RoundTile(const ProductSums& sums, BFloat16* tile) {
  const int32_t first_row = ProductWarpRow() + LaneId() / 4;
  const int32_t first_column = ProductWarpColumn() + LaneId() % 4 * 2;
#pragma unroll
  for (int i = 0; i < ProductSums::kHigh; ++i) {
#pragma unroll
    for (int j = 0; j < ProductSums::kWide; ++j) {
      const float* sum = sums.sums[i][j];
      BFloat16* to = tile + (first_row + 16 * i) * kProductRightPitch + first_column + 8 * j;
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum[0], sum[1]);
      *reinterpret_cast<__nv_bfloat162*>(to + 8 * kProductRightPitch) =
          __floats2bfloat162_rn(sum[2], sum[3]);
    }
  }
}

// One vector of a token's row to the row's places.
__device__ inline void StoreToPlaces(const PathView& path, const int32_t* dst, int64_t token,
                                     int32_t column, const uint4& vector) {
  const int32_t topk = path.geometry.topk;
  const int32_t* places = dst + token * topk;
#pragma unroll 4
  for (int32_t k = 0; k < topk; ++k) {
    const int32_t place = __ldg(places + k);
    if (!IsPrimary(place)) continue;
    const int32_t rank = RankOf(place, path.logical_rows);
    BFloat16* row = RowAt(path.shards[rank].rows, LocalRow(place, path.logical_rows), path.hidden);
    *reinterpret_cast<uint4*>(row + column) = vector;
  }
}

// Sixteen threads store a row of the tile.
template <bool kToPlaces>
__device__ inline void StoreTile(const PathView& path, const ProductArguments& arguments,
                                 const ProductTile& tile, const BFloat16* rows) {
  constexpr int kVectors = kProductColumns / kVectorElements;
  const int32_t in_tile = static_cast<int32_t>(threadIdx.x) % kVectors * kVectorElements;
  const int32_t column = tile.column + in_tile;
  if (column >= path.hidden) return;
  const int32_t count = min(kProductRows, arguments.token_count - tile.row);
  for (int32_t row = threadIdx.x / kVectors; row < count; row += kProductThreads / kVectors) {
    const uint4 vector = *reinterpret_cast<const uint4*>(rows + row * kProductRightPitch + in_tile);
    if (kToPlaces) {
      StoreToPlaces(path, arguments.dst, tile.row + row, column, vector);
    } else {
      *reinterpret_cast<uint4*>(RowAt(arguments.output, tile.row + row, path.hidden) + column) =
          vector;
    }
  }
}

// A block for each tile, those of a row of tiles one after the other.
template <bool kToPlaces>
__global__ void __launch_bounds__(kProductThreads, kProductBlocksOfSm)
    ProductKernel(PathView path, ProductArguments arguments) {
  extern __shared__ __align__(kSharedAlignment) uint4 words[];
  ProductShared& shared = *reinterpret_cast<ProductShared*>(words);
  AwaitKernelAhead();
  if (Stopped(path)) return;
  const int32_t wide = (path.hidden + kProductColumns - 1) / kProductColumns;
  const auto block = static_cast<int32_t>(blockIdx.x);
  const ProductTile tile = {block / wide * kProductRows, block % wide * kProductColumns};
  ProductSums sums = {};
  MultiplyTile(arguments, path.hidden, tile, shared.stages, sums);
  RoundTile(sums, shared.tile);
  __syncthreads();
  StoreTile<kToPlaces>(path, arguments, tile, shared.tile);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PRODUCT_KERNEL_CUH_
