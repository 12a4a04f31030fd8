// Kernels of combine_launch.h. Sums are kernels/algo's, so the bits are the host backend's.
#ifndef PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_

#include <cstdint>

#include "kernels/algo/row_sum.h"
#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

using VectorSum = RowAccumulator<kVectorElements>;

__device__ inline void StartSum(VectorSum& sum, const uint4& vector) {
  sum.Start(reinterpret_cast<const BFloat16*>(&vector));
}
__device__ inline void AddToSum(VectorSum& sum, const uint4& vector) {
  sum.Add(reinterpret_cast<const BFloat16*>(&vector));
}
__device__ inline uint4 SumOf(const VectorSum& sum) {
  uint4 vector;
  sum.Store(reinterpret_cast<BFloat16*>(&vector));
  return vector;
}

// A warp a group of duplicates. Each lane reads its columns of all rows before it writes them.
__global__ void __launch_bounds__(kRowThreads) SumDuplicatesKernel(PathView path, PlanView plan) {
  if (Stopped(path)) return;
  BFloat16* rows = path.shards[path.rank].rows;
  const int32_t vectors = path.hidden / kVectorElements;
  const int64_t groups = plan.counts->duplicate_groups;
  for (int64_t i = GridWarp(); i < groups; i += GridWarps()) {
    const DeviceDuplicateGroup group = plan.duplicate_groups[i];
    const int32_t* duplicates = plan.duplicate_rows + group.start;
    uint4* primary = Vectors(rows, group.primary_row, path.hidden);
    for (int32_t at = LaneId(); at < vectors; at += 32) {
      VectorSum sum;
      StartSum(sum, primary[at]);
      for (int32_t j = 0; j < group.count; ++j) {
        AddToSum(sum, Vectors(rows, duplicates[j], path.hidden)[at]);
      }
      primary[at] = SumOf(sum);
    }
  }
}

__device__ inline void GatherWeight(const PathView& path, const GatherArguments& arguments,
                                    int64_t route) {
  const int32_t dst = arguments.plan.dst[route];
  float weight = 0.0f;
  if (!IsMasked(dst)) {
    const int32_t raw = DecodeRow(dst);
    const ShardView& shard = path.shards[RankOf(raw, path.logical_rows)];
    weight = shard.row_weights[LocalRow(raw, path.logical_rows)];
  }
  arguments.route_weights[route] = weight;
}

// A warp a token, all S of them: those past the plan's token count have no rows.
__global__ void __launch_bounds__(kRowThreads)
    SumTokensKernel(PathView path, GatherArguments arguments) {
  if (Stopped(path)) return;
  const int32_t topk = path.geometry.topk;
  const int32_t vectors = path.hidden / kVectorElements;
  const int32_t lane = LaneId();
  for (int64_t token = GridWarp(); token < path.geometry.tokens; token += GridWarps()) {
    const uint4* place = nullptr;  // lane k's: the row of route k if it is a primary
    if (lane < topk) {
      const int32_t dst = arguments.plan.dst[token * topk + lane];
      if (IsPrimary(dst)) {
        const ShardView& shard = path.shards[RankOf(dst, path.logical_rows)];
        place = Vectors(shard.rows, LocalRow(dst, path.logical_rows), path.hidden);
      }
      if (arguments.route_weights != nullptr) GatherWeight(path, arguments, token * topk + lane);
    }
    const uint32_t primaries = __ballot_sync(0xffffffffu, place != nullptr);
    uint4* out = Vectors(arguments.hidden, token, path.hidden);
    for (int32_t first = 0; first < vectors; first += 32) {
      const int32_t at = first + lane;
      VectorSum sum;
      for (uint32_t left = primaries; left != 0; left &= left - 1) {
        auto address = reinterpret_cast<unsigned long long>(place);
        address = __shfl_sync(0xffffffffu, address, __ffs(left) - 1);
        if (at >= vectors) continue;
        const uint4 vector = reinterpret_cast<const uint4*>(address)[at];
        if (left == primaries) {
          StartSum(sum, vector);
        } else {
          AddToSum(sum, vector);
        }
      }
      if (at < vectors) out[at] = primaries == 0 ? make_uint4(0, 0, 0, 0) : SumOf(sum);
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
