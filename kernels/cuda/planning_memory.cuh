// Where a block of a dispatch keeps what it plans with: shared memory where PlanningShape says so.
#ifndef PERIGEE_KERNELS_CUDA_PLANNING_MEMORY_CUH_
#define PERIGEE_KERNELS_CUDA_PLANNING_MEMORY_CUH_

#include <cstdint>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/row_vectors.cuh"

namespace perigee {

// The blocks of a dispatch are this large.
inline constexpr int kDispatchThreads = 1024;
inline constexpr int kWarp = 32;

__device__ inline int32_t WarpOfBlock() { return static_cast<int32_t>(threadIdx.x / kWarp); }

struct PlanningMemory {
  PlanningShape shape;
  int32_t* earlier = nullptr;      // [E] routes of lower ranks and of earlier blocks of this rank
  int32_t* warp_counts = nullptr;  // [warps, E] of this block
  GroupTables tables;              // this block's, or all blocks'
};

__device__ inline PlanningMemory PlacePlanningMemory(const PathView& path,
                                                     const PlanningScratch& scratch,
                                                     int32_t* shared) {
  const int64_t experts = path.geometry.experts;
  PlanningMemory memory;
  memory.shape = PlanningShape::Of(path.geometry, static_cast<int32_t>(gridDim.x));
  const auto take = [&shared](bool is_shared, int32_t* elsewhere, int64_t words) {
    if (!is_shared) return elsewhere;
    int32_t* taken = shared;
    shared += words;
    return taken;
  };
  memory.earlier = take(memory.shape.sums_are_shared, scratch.sums + experts * blockIdx.x, experts);
  const int64_t counts = memory.shape.warps * experts;
  memory.warp_counts =
      take(memory.shape.counts_are_shared, scratch.warp_counts + counts * blockIdx.x, counts);
  memory.tables = GroupTables::At(
      take(memory.shape.tables_are_shared, scratch.tables, GroupTables::Words(path.geometry)),
      path.geometry);
  return memory;
}

// [begin, end) of tokens.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
};
__device__ inline TokenRange Part(const TokenRange& all, int32_t part, int32_t parts) {
  const auto each = static_cast<int32_t>(static_cast<uint32_t>(all.end - all.begin + parts - 1) /
                                         static_cast<uint32_t>(parts));
  const int32_t begin = min(all.begin + part * each, all.end);
  return {begin, min(begin + each, all.end)};
}
__device__ inline TokenRange TokensOfBlock(int32_t token_count) {
  return Part({0, token_count}, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x));
}

// A warp that works through whole tokens' routes, a lane a route.
struct RoutesOfLane {
  int32_t tokens = 0;  // at a time
  int32_t token = 0;   // this lane's among them; as many where it has none

  __device__ explicit RoutesOfLane(int32_t topk)
      : tokens(kWarp / topk), token(min(LaneId() / topk, tokens)) {}
  // Whether the lane has one, `first` being the first token of those before `end`.
  __device__ bool IsRoute(int32_t first, int32_t end) const {
    return token < tokens && first + token < end;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLANNING_MEMORY_CUH_
