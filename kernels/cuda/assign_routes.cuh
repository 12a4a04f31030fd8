// Steps 4, 7 and 8 of planning on the device: where each of this rank's routes goes.
#ifndef PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_CUH_
#define PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_CUH_

#include <cstdint>

#include "kernels/cuda/planning_memory.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// In the place of an expert: a lane without a route. Masked routes are -1.
inline constexpr int32_t kNoRoute = -2;

// The place of a route among its expert's in this block, by a stable counting sort: one warp works
// through its run of tokens; `counts` [E] is what earlier routes have taken. Experts have `bits`
// bits.
__device__ inline int32_t TakePlace(int32_t expert, int bits, int32_t* counts) {
  uint32_t same = __ballot_sync(0xffffffffu, expert >= 0);
#pragma unroll 1
  for (int bit = 0; bit < bits; ++bit) {
    const bool set = (expert >> bit & 1) != 0;
    const uint32_t with = __ballot_sync(0xffffffffu, set);
    same &= set ? with : ~with;
  }
  const int32_t before = __popc(same & ((1u << LaneId()) - 1));
  const int32_t base = expert >= 0 ? counts[expert] : 0;
  __syncwarp();  // all have read before one writes
  if (expert >= 0 && before == 0) counts[expert] = base + __popc(same);
  __syncwarp();
  return base + before;
}

// A row of some rank.
struct RowPlace {
  int32_t rank = 0;
  int32_t row = 0;
};

// The row of an expert's route with global index g: the routes are dealt to ranks in ascending
// order, alloc of them to each.
__device__ inline RowPlace PlaceOfRoute(const PathView& path, const GroupTables& tables,
                                        int32_t expert, int32_t g) {
  const int32_t experts = path.geometry.experts;
  int32_t rank = tables.whole_at[expert];
  if (rank < 0) {
    const int32_t* alloc = tables.alloc + expert;
#pragma unroll 1
    for (rank = 0; rank < path.geometry.ranks - 1 && g >= *alloc; ++rank) {
      g -= *alloc;
      alloc += experts;
    }
  }
  return {rank, tables.group_start[int64_t{rank} * experts + expert] + g};
}

// Step 8 for a lane that has one of a token's routes, the token's first lane being `first_lane`:
// the encoded destination. All lanes.
__device__ inline int32_t EncodeRoute(const PathView& path, int32_t first_lane, bool goes,
                                      const RowPlace& place) {
  const int32_t rank = goes ? place.rank : -1;
  bool is_primary = true;
#pragma unroll 1
  for (int32_t lane = first_lane; lane < first_lane + path.geometry.topk; ++lane) {
    const int32_t other = __shfl_sync(0xffffffffu, rank, lane % kWarp);
    if (lane < LaneId() && other == rank) is_primary = false;
  }
  if (!goes) return kMaskedRoute;
  const int32_t raw = place.rank * path.logical_rows + place.row;
  return is_primary ? raw : EncodeDuplicate(raw);
}

// All routes of this block's tokens; those of tokens past the count are masked by whichever block.
__device__ inline void AssignRoutes(const PathView& path, const PlanningArguments& arguments,
                                    const PlanningMemory& memory) {
  const int32_t topk = path.geometry.topk;
  if (WarpOfBlock() < memory.shape.warps) {
    const TokenRange tokens =
        Part(TokensOfBlock(arguments.token_count), WarpOfBlock(), memory.shape.warps);
    int32_t* counts = memory.warp_counts + WarpOfBlock() * path.geometry.experts;
    const int bits = 32 - __clz(path.geometry.experts - 1);
    // Whole tokens at a time; the next ones are read ahead.
    const RoutesOfLane lane(topk);
    const auto expert_at = [&](int32_t first) {
      return lane.IsRoute(first, tokens.end)
                 ? arguments.scratch.routes[int64_t{first} * topk + LaneId()]
                 : kNoRoute;
    };
    int32_t next = expert_at(tokens.begin);
#pragma unroll 1
    for (int32_t first = tokens.begin; first < tokens.end; first += lane.tokens) {
      const int32_t expert = next;
      next = expert_at(first + lane.tokens);
      const int32_t place = TakePlace(expert, bits, counts);
      RowPlace row;
      if (expert >= 0) {
        row = PlaceOfRoute(path, memory.tables, expert, memory.earlier[expert] + place);
      }
      const int32_t dst = EncodeRoute(path, lane.token * topk, expert >= 0, row);
      if (expert != kNoRoute) arguments.plan.dst[int64_t{first} * topk + LaneId()] = dst;
    }
  }
  const int32_t end = path.geometry.routes();
  const auto step = static_cast<int32_t>(gridDim.x * kDispatchThreads);
  int32_t i = arguments.token_count * topk;
#pragma unroll 1
  for (i += static_cast<int32_t>(blockIdx.x * kDispatchThreads + threadIdx.x); i < end; i += step) {
    arguments.plan.dst[i] = kMaskedRoute;
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ASSIGN_ROUTES_CUH_
