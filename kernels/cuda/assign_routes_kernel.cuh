// Steps 4, 7 and 8 of planning on the device: where each of this rank's routes goes.
#ifndef PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/count_routes_kernel.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// The place of a route among its expert's: by the counting sort of its chunk. One warp works
// through the chunk 32 routes at a time; `counts` [E] is what earlier routes have taken.
__device__ inline int32_t TakePlace(int32_t expert, int32_t* counts) {
  const int32_t lane = threadIdx.x % kWarp;
  const uint32_t same = __match_any_sync(0xffffffffu, expert);
  const int32_t before = __popc(same & ((1u << lane) - 1));
  const int32_t base = expert >= 0 ? counts[expert] : 0;
  __syncwarp();  // all have read before one writes
  if (expert >= 0 && before == 0) counts[expert] = base + __popc(same);
  __syncwarp();
  return base + before;
}

// The row of an expert's route with global index g: the routes are dealt to ranks in ascending
// order, alloc of them to each.
__device__ inline int32_t RawDestination(const PathView& path, const PlanningScratch& scratch,
                                         int32_t expert, int32_t g) {
  const int32_t ranks = path.geometry.ranks;
  const int32_t* alloc = scratch.alloc + int64_t{expert} * ranks;
  int32_t rank = 0;
  while (rank < ranks - 1 && g >= alloc[rank]) g -= alloc[rank++];
  return rank * path.logical_rows +
         scratch.group_start[int64_t{rank} * path.geometry.experts + expert] + g;
}

// Turns the raw rows of one token into primaries and duplicates.
__device__ inline void MarkDuplicates(const PathView& path, int32_t* token_dst) {
  uint32_t seen[kControlPeers / 32] = {};
  for (int32_t k = 0; k < path.geometry.topk; ++k) {
    const int32_t raw = token_dst[k];
    if (IsMasked(raw)) continue;
    const int32_t rank = RankOf(raw, path.logical_rows);
    const uint32_t bit = 1u << (rank % 32);
    if (seen[rank / 32] & bit) token_dst[k] = EncodeDuplicate(raw);
    seen[rank / 32] |= bit;
  }
}

__global__ void __launch_bounds__(kChunkThreads)
    AssignRoutesKernel(PathView path, PlanningArguments arguments, RouteChunks chunks) {
  if (Stopped(path)) return;
  const int32_t chunk = ChunkOfThread();
  if (chunk >= chunks.count) return;
  const PlanningScratch& scratch = arguments.scratch;
  const int32_t experts = path.geometry.experts;
  const int32_t topk = path.geometry.topk;
  const int32_t lane = threadIdx.x % kWarp;
  const TokenRange tokens = ChunkTokens(chunks, chunk, arguments.token_count);
  int32_t* counts = scratch.chunk_counts + static_cast<int64_t>(chunk) * experts;
  const int32_t end = tokens.end * topk;
  for (int32_t first = tokens.begin * topk; first < end; first += kWarp) {
    const int32_t i = first + lane;
    const int32_t expert = i < end ? scratch.routes[i] : -1;
    const int32_t place = TakePlace(expert, counts);
    if (i >= end) continue;
    arguments.plan.dst[i] =
        expert < 0 ? kMaskedRoute
                   : RawDestination(path, scratch, expert, scratch.before[expert] + place);
  }
  __syncwarp();
  for (int32_t token = tokens.begin + lane; token < tokens.end; token += kWarp) {
    MarkDuplicates(path, arguments.plan.dst + static_cast<int64_t>(token) * topk);
  }
}

__global__ void MaskLaterTokensKernel(PathView path, PlanningArguments arguments) {
  if (Stopped(path)) return;
  const int64_t end = path.geometry.routes();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{arguments.token_count} * path.geometry.topk;
  for (i += int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += step) {
    arguments.plan.dst[i] = kMaskedRoute;
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_KERNEL_CUH_
