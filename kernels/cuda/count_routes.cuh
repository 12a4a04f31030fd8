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
  constexpr int kAhead = 4;
  const int32_t experts = path.geometry.experts;
  const int32_t warps = memory.shape.warps;
#pragma unroll 1
  for (int32_t i = threadIdx.x; i < warps * experts; i += kDispatchThreads) {
    memory.warp_counts[i] = 0;
  }
  __syncthreads();
  if (WarpOfBlock() < warps) {
    const TokenRange tokens = Part(TokensOfBlock(arguments.token_count), WarpOfBlock(), warps);
    const int32_t end = tokens.end * path.geometry.topk;
    int32_t* counts = memory.warp_counts + WarpOfBlock() * experts;
#pragma unroll 1
    for (int32_t first = tokens.begin * path.geometry.topk + LaneId(); first < end;
         first += kAhead * kWarp) {
      int32_t routes[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = first + i * kWarp;
        routes[i] = at < end ? arguments.topk_experts[at] : -1;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = first + i * kWarp;
        const int32_t expert = routes[i];
        if (at < end) arguments.scratch.routes[at] = expert;
        if (expert == -1) continue;
        if (static_cast<uint32_t>(expert) >= static_cast<uint32_t>(experts)) {
          atomicMin(&path.state->bad_route, static_cast<uint32_t>(at));
        } else {
          atomicAdd(&counts[expert], 1);
        }
      }
    }
  }
  __syncthreads();
  int32_t* sums = arguments.scratch.block_counts + int64_t{blockIdx.x} * experts;
#pragma unroll 1
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t* count = memory.warp_counts + expert;
    int32_t sum = 0;
#pragma unroll 2
    for (int32_t warp = 0; warp < warps; ++warp, count += experts) {
      const int32_t here = *count;
      *count = sum;
      sum += here;
    }
    sums[expert] = sum;
  }
}

// The routes of each expert that blocks [0, blocks) have counted: into(expert, sum).
template <typename Into>
__device__ inline void SumBlockCounts(const PathView& path, const PlanningScratch& scratch,
                                      int32_t blocks, const Into& into) {
  constexpr int kAhead = 8;
  const int32_t experts = path.geometry.experts;
#pragma unroll 1
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t sum = 0;
#pragma unroll 1
    for (int32_t first = 0; first < blocks; first += kAhead) {
      const int32_t* count = &scratch.block_counts[int64_t{first} * experts + expert];
#pragma unroll
      for (int i = 0; i < kAhead; ++i, count += experts) {
        if (first + i < blocks) sum += __ldcg(count);
      }
    }
    into(expert, sum);
  }
}

// When all have counted: what earlier blocks have, for each; by the first block also this rank's
// histogram and header into its shard, by sequence parity; why two places are enough stands in
// kernels/layout/control_page.h.
__device__ inline void SumCountsOfBlocks(const PathView& path, const OperationMark& mark,
                                         const PlanningArguments& arguments,
                                         const PlanningMemory& memory) {
  const ShardView& own = path.shards[path.rank];
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const bool publishes = blockIdx.x == 0;
  const uint32_t bad_route = publishes ? path.state->bad_route : UINT32_MAX;
  int32_t* histogram = own.histograms + parity * path.geometry.experts;
  SumBlockCounts(path, arguments.scratch, static_cast<int32_t>(publishes ? gridDim.x : blockIdx.x),
                 [&](int32_t expert, int32_t sum) {
                   memory.earlier[expert] = publishes ? 0 : sum;
                   if (publishes) histogram[expert] = bad_route == UINT32_MAX ? sum : 0;
                 });
  if (!publishes || threadIdx.x != 0) return;
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
