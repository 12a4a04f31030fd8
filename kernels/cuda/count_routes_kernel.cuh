// Step 1 of planning on the device: routes by expert, in chunks of tokens, one warp each.
#ifndef PERIGEE_KERNELS_CUDA_COUNT_ROUTES_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_COUNT_ROUTES_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_launch.h"

namespace perigee {

inline constexpr int kWarp = 32;
inline constexpr int kChunkThreads = 128;  // four chunks a block

// [begin, end) of a chunk's tokens.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
};
__device__ inline TokenRange ChunkTokens(const RouteChunks& chunks, int32_t chunk,
                                         int32_t token_count) {
  const int32_t begin = min(chunk * chunks.tokens, token_count);
  return {begin, min(begin + chunks.tokens, token_count)};
}
__device__ inline int32_t ChunkOfThread() {
  return static_cast<int32_t>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
}

// chunk_counts is zero, PathState::bad_route is UINT32_MAX.
__global__ void __launch_bounds__(kChunkThreads)
    CountChunksKernel(PathView path, PlanningArguments arguments, RouteChunks chunks) {
  if (Stopped(path)) return;
  const int32_t chunk = ChunkOfThread();
  if (chunk >= chunks.count) return;
  const int32_t experts = path.geometry.experts;
  const int32_t topk = path.geometry.topk;
  const TokenRange tokens = ChunkTokens(chunks, chunk, arguments.token_count);
  int32_t* counts = arguments.scratch.chunk_counts + static_cast<int64_t>(chunk) * experts;
  const int32_t lane = threadIdx.x % kWarp;
  for (int32_t i = tokens.begin * topk + lane; i < tokens.end * topk; i += kWarp) {
    const int32_t expert = arguments.topk_experts[i];
    arguments.scratch.routes[i] = expert;
    if (expert == -1) continue;
    if (expert < 0 || expert >= experts) {
      atomicMin(&path.state->bad_route, static_cast<uint32_t>(i));
    } else {
      atomicAdd(&counts[expert], 1);
    }
  }
}

// Turns each chunk's counts into those of the chunks before it, and publishes the sums: by sequence
// parity, why two places are enough stands in kernels/layout/control_page.h.
__global__ void PublishCountsKernel(PathView path, OperationMark mark, PlanningArguments arguments,
                                    RouteChunks chunks) {
  if (Stopped(path)) return;
  const int64_t experts = path.geometry.experts;
  const ShardView& own = path.shards[path.rank];
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const uint32_t bad_route = path.state->bad_route;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t expert = first; expert < experts; expert += int64_t{gridDim.x} * blockDim.x) {
    int32_t sum = 0;
    for (int32_t chunk = 0; chunk < chunks.count; ++chunk) {
      int32_t& count = arguments.scratch.chunk_counts[chunk * experts + expert];
      const int32_t here = count;
      count = sum;
      sum += here;
    }
    own.histograms[parity * experts + expert] = bad_route == UINT32_MAX ? sum : 0;
  }
  if (first != 0) return;
  PlanningHeader header;
  header.token_count = arguments.token_count;
  if (bad_route != UINT32_MAX) {
    header.bad_token = static_cast<int32_t>(bad_route) / path.geometry.topk;
    header.bad_k = static_cast<int32_t>(bad_route) % path.geometry.topk;
    header.bad_value = arguments.scratch.routes[bad_route];
  }
  StoreWords(&own.planning[parity], header);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COUNT_ROUTES_KERNEL_CUH_
