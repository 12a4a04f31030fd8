// What a route carries besides the row: its weight, and whose duplicate its row is.
#ifndef PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_
#define PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_

#include <cstdint>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// In ShardView::duplicate_ordinal of a primary with duplicates: how many these are, that it is one,
// and whether their rows have been written with the primary's, as a rank does for its own tokens.
inline constexpr uint8_t kHasDuplicates = 0x40;
inline constexpr uint8_t kExpandedAtSource = 0x80;
inline constexpr uint8_t kDuplicateCount = 0x3f;  // K is at most 32
// Rows of a map that are looked at together.
inline constexpr int32_t kLinkedRows = 16;

// The owner of a map makes it ready before an entry barrier: no row is a duplicate or has any.
__device__ inline void ClearLinks(const PathView& path) {
  const ShardView& own = path.shards[path.rank];
  const int64_t step = int64_t{gridDim.x} * kDispatchThreads;
  const int64_t first = int64_t{blockIdx.x} * kDispatchThreads + threadIdx.x;
  // Whole words: both arrays begin at a multiple of 64 bytes and are followed by padding to one.
  const int64_t words = (int64_t{path.logical_rows} + kLinkedRows - 1) / kLinkedRows * 4;
  for (int64_t i = first; i < words; i += step) {
    reinterpret_cast<int4*>(own.duplicate_primary)[i] = make_int4(-1, -1, -1, -1);
    reinterpret_cast<uint32_t*>(own.duplicate_ordinal)[i] = 0;
  }
}

// Lanes of a warp have the routes of whole tokens, `goes` where one is not masked. Writes links for
// rows that have duplicates or are one.
__device__ inline void SendLinks(const PathView& path, int32_t token_of_warp, bool goes,
                                 int32_t rank, int32_t row) {
  const uint32_t key = goes ? token_of_warp * kControlPeers + rank : 0x80000000u + LaneId();
  // The token's routes to the same rank, in order of k.
  const uint32_t same = __match_any_sync(0xffffffffu, key);
  const int primary_lane = __ffs(same) - 1;
  const int32_t primary_row = __shfl_sync(0xffffffffu, row, primary_lane);
  const int32_t duplicates = __popc(same) - 1;
  if (!goes || duplicates == 0) return;
  const ShardView& shard = path.shards[rank];
  if (primary_lane == LaneId()) {
    const uint8_t expanded = rank == path.rank ? kExpandedAtSource : 0;
    shard.duplicate_ordinal[row] = static_cast<uint8_t>(duplicates | kHasDuplicates | expanded);
  } else {
    shard.duplicate_primary[row] = primary_row;
    shard.duplicate_ordinal[row] = static_cast<uint8_t>(__popc(same & ((1u << LaneId()) - 1)));
  }
}

// Every route's weight, and with `links` its link, for this block's tokens: by the warps of the
// block from `first_warp` on.
__device__ inline void SendRoutes(const PathView& path, const SendArguments& send, bool links,
                                  int32_t first_warp) {
  if (send.route_weights == nullptr && !links) return;
  const int32_t topk = path.geometry.topk;
  const int32_t warps = kDispatchThreads / kWarp - first_warp;
  const TokenRange tokens = TokensOfBlock(send.token_count);
  const int32_t each = kWarp / topk;  // whole tokens at a time
  const int32_t lane = LaneId();
  for (int32_t first = tokens.begin + each * (WarpOfBlock() - first_warp); first < tokens.end;
       first += each * warps) {
    const bool is_route = lane < each * topk && first + lane / topk < tokens.end;
    const int64_t route = int64_t{first} * topk + lane;
    const int32_t dst = is_route ? send.plan.dst[route] : kMaskedRoute;
    const bool goes = !IsMasked(dst);
    const int32_t raw = goes ? DecodeRow(dst) : 0;
    const int32_t rank = RankOf(raw, path.logical_rows);
    const int32_t row = LocalRow(raw, path.logical_rows);
    if (goes && send.route_weights != nullptr) {
      path.shards[rank].row_weights[row] = send.route_weights[route];
    }
    if (links) SendLinks(path, lane / topk, goes, rank, row);
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_
