// Step 1 of planning on the device: routes by expert.
#ifndef PERIGEE_KERNELS_CUDA_COUNT_ROUTES_CUH_
#define PERIGEE_KERNELS_CUDA_COUNT_ROUTES_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_memory.cuh"

namespace perigee {

// Counts the routes of this block's tokens, warp by warp, into block_counts, and turns each warp's
// counts into those of the warps before it. PathState::bad_route is UINT32_MAX before.
__device__ inline void CountRoutes(const PathView& path, const PlanningArguments& arguments,
                                   const PlanningMemory& memory) {
  const int32_t experts = path.geometry.experts;
  const int32_t topk = path.geometry.topk;
  const int32_t warps = memory.shape.warps;
  for (int64_t i = threadIdx.x; i < int64_t{warps} * experts; i += kDispatchThreads) {
    memory.warp_counts[i] = 0;
  }
  __syncthreads();
  if (WarpOfBlock() < warps) {
    const TokenRange tokens = Part(TokensOfBlock(arguments.token_count), WarpOfBlock(), warps);
    int32_t* counts = memory.warp_counts + int64_t{WarpOfBlock()} * experts;
#pragma unroll 4
    for (int32_t i = tokens.begin * topk + LaneId(); i < tokens.end * topk; i += kWarp) {
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
  __syncthreads();
  int32_t* sums = arguments.scratch.block_counts + int64_t{blockIdx.x} * experts;
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t sum = 0;
#pragma unroll 8
    for (int32_t warp = 0; warp < warps; ++warp) {
      int32_t& count = memory.warp_counts[int64_t{warp} * experts + expert];
      const int32_t here = count;
      count = sum;
      sum += here;
    }
    sums[expert] = sum;
  }
}

// The routes of each expert that blocks [0, blocks) have counted: into(expert, sum).
template <typename Into>
__device__ inline void SumBlockCounts(const PathView& path, const PlanningScratch& scratch,
                                      int32_t blocks, const Into& into) {
  const int32_t experts = path.geometry.experts;
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t sum = 0;
#pragma unroll 8
    for (int32_t block = 0; block < blocks; ++block) {
      sum += __ldcg(&scratch.block_counts[int64_t{block} * experts + expert]);
    }
    into(expert, sum);
  }
}

// One block, when all have counted: this rank's histogram and header into its shard, by sequence
// parity; why two places are enough stands in kernels/layout/control_page.h.
__device__ inline void PublishCounts(const PathView& path, const OperationMark& mark,
                                     const PlanningArguments& arguments) {
  const ShardView& own = path.shards[path.rank];
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const uint32_t bad_route = path.state->bad_route;
  int32_t* histogram = own.histograms + parity * path.geometry.experts;
  SumBlockCounts(
      path, arguments.scratch, static_cast<int32_t>(gridDim.x),
      [&](int32_t expert, int32_t sum) { histogram[expert] = bad_route == UINT32_MAX ? sum : 0; });
  if (threadIdx.x != 0) return;
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

#endif  // PERIGEE_KERNELS_CUDA_COUNT_ROUTES_CUH_
