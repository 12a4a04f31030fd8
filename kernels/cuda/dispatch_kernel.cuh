// Kernels of dispatch_launch.h. None waits for a peer.
#ifndef PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// What a route carries besides the row: lane k does it for route k of the token.
__device__ inline void SendRoute(const PathView& path, const SendArguments& arguments,
                                 const int32_t* token_dst, int64_t route, int32_t k) {
  if (IsMasked(token_dst[k])) return;
  const int32_t raw = DecodeRow(token_dst[k]);
  const ShardView& shard = path.shards[RankOf(raw, path.logical_rows)];
  const int32_t row = LocalRow(raw, path.logical_rows);
  if (arguments.route_weights != nullptr) shard.row_weights[row] = arguments.route_weights[route];
  if (!arguments.send_links) return;
  const DuplicateLink link = LinkOf(token_dst, k, path.logical_rows);
  shard.duplicate_primary[row] = link.primary;
  shard.duplicate_ordinal[row] = link.ordinal;
}

// A warp a token: its row is read once and stored to each primary's place. Every row of every shard
// has one source, so no two warps or ranks store to the same place.
__global__ void __launch_bounds__(kRowThreads) SendKernel(PathView path, SendArguments arguments) {
  if (Stopped(path)) return;
  const int32_t topk = path.geometry.topk;
  const int32_t vectors = path.hidden / kVectorElements;
  const int32_t lane = LaneId();
  for (int64_t token = GridWarp(); token < arguments.token_count; token += GridWarps()) {
    const int32_t* token_dst = arguments.plan.dst + token * topk;
    if (lane < topk) SendRoute(path, arguments, token_dst, token * topk + lane, lane);
    // Lane k knows where the row of route k goes, null if it does not travel.
    uint4* place = nullptr;
    if (lane < topk && IsPrimary(token_dst[lane])) {
      const ShardView& shard = path.shards[RankOf(token_dst[lane], path.logical_rows)];
      place = Vectors(shard.rows, LocalRow(token_dst[lane], path.logical_rows), path.hidden);
    }
    const uint32_t primaries = __ballot_sync(0xffffffffu, place != nullptr);
    const uint4* row = Vectors(arguments.hidden, token, path.hidden);
    for (int32_t first = 0; first < vectors; first += 32 * kVectorsInFlight) {
      uint4 held[kVectorsInFlight];
#pragma unroll
      for (int i = 0; i < kVectorsInFlight; ++i) {
        const int32_t at = first + 32 * i + lane;
        if (at < vectors) held[i] = row[at];
      }
      for (uint32_t left = primaries; left != 0; left &= left - 1) {
        auto address = reinterpret_cast<unsigned long long>(place);
        address = __shfl_sync(0xffffffffu, address, __ffs(left) - 1);
        uint4* to = reinterpret_cast<uint4*>(address);
#pragma unroll
        for (int i = 0; i < kVectorsInFlight; ++i) {
          const int32_t at = first + 32 * i + lane;
          if (at < vectors) to[at] = held[i];
        }
      }
    }
  }
}

// Zeros in this rank's own padding rows and their weights, a block a group.
__global__ void __launch_bounds__(kRowThreads) ZeroPaddingKernel(PathView path, PlanView plan) {
  if (Stopped(path)) return;
  const ShardView& own = path.shards[path.rank];
  const int64_t vectors = path.hidden / kVectorElements;
  for (int32_t group = blockIdx.x; group < path.geometry.groups(); group += gridDim.x) {
    const int32_t first = plan.zero_fill_ranges[2 * group];
    const int32_t count = plan.zero_fill_ranges[2 * group + 1];
    uint4* rows = Vectors(own.rows, first, path.hidden);
    for (int64_t i = threadIdx.x; i < count * vectors; i += blockDim.x) {
      rows[i] = make_uint4(0, 0, 0, 0);
    }
    for (int32_t i = threadIdx.x; i < count; i += blockDim.x) own.row_weights[first + i] = 0.0f;
  }
}

// A warp a group of duplicates.
__global__ void __launch_bounds__(kRowThreads) ExpandKernel(PathView path, PlanView plan) {
  if (Stopped(path)) return;
  BFloat16* rows = path.shards[path.rank].rows;
  const int32_t vectors = path.hidden / kVectorElements;
  const int64_t groups = plan.counts->duplicate_groups;
  for (int64_t i = GridWarp(); i < groups; i += GridWarps()) {
    const DeviceDuplicateGroup group = plan.duplicate_groups[i];
    const int32_t* duplicates = plan.duplicate_rows + group.start;
    const uint4* primary = Vectors(rows, group.primary_row, path.hidden);
    ForEachVector(primary, vectors, [&](int32_t at, const uint4& vector) {
      for (int32_t j = 0; j < group.count; ++j) {
        Vectors(rows, duplicates[j], path.hidden)[at] = vector;
      }
    });
  }
}

__global__ void __launch_bounds__(kRowThreads)
    CopyUsedRowsKernel(PathView path, PlanView plan, CopyArguments copy) {
  if (Stopped(path)) return;
  const int32_t used = UsedRows(plan, path.geometry);
  const int32_t vectors = path.hidden / kVectorElements;
  if (copy.rows_to != nullptr) {
    for (int64_t row = GridWarp(); row < used; row += GridWarps()) {
      CopyVectors(Vectors(copy.rows_to, row, path.hidden),
                  Vectors(copy.rows_from, row, path.hidden), vectors);
    }
  }
  if (copy.weights_to == nullptr) return;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < used; row += step) {
    copy.weights_to[row] = copy.weights_from[row];
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_
