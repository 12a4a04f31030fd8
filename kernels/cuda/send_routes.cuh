// What a route carries besides the row: its weight, and whose duplicate its row is.
#ifndef PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_
#define PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_

#include <cstdint>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// A token's rows on one rank are a chain in ShardView::duplicate_primary: the primary has the row
// of the first duplicate, each duplicate but the last that of the next. The source of the token
// writes it; so the owner finds all rows of a token from its primary, and little is written.
//
// In ShardView::duplicate_ordinal of a primary with duplicates: how many these are, that it is one,
// and whether their rows have been written with the primary's, as a rank does for its own tokens.
// Of any other row: 0.
inline constexpr uint8_t kHasDuplicates = 0x40;
inline constexpr uint8_t kExpandedAtSource = 0x80;
inline constexpr uint8_t kDuplicateCount = 0x3f;  // K is at most 32
// Rows of a map that are looked at together.
inline constexpr int32_t kLinkedRows = 16;

// The owner of a map makes it ready before an entry barrier: no row has duplicates. A chain is
// written whole wherever there is one.
__device__ inline void ClearLinks(const PathView& path) {
  // Whole words: the array begins at a multiple of 64 bytes and is followed by padding to one.
  auto* ordinals = reinterpret_cast<uint4*>(path.shards[path.rank].duplicate_ordinal);
  const uint32_t words = (path.logical_rows + kLinkedRows - 1u) / kLinkedRows;
#pragma unroll 1
  for (uint32_t i = blockIdx.x * kDispatchThreads + threadIdx.x; i < words;
       i += gridDim.x * kDispatchThreads) {
    ordinals[i] = make_uint4(0, 0, 0, 0);
  }
}

// Lanes of a warp have the routes of whole tokens, `goes` where one is not masked. Writes links for
// rows that have duplicates or are one.
__device__ inline void SendLinks(const PathView& path, int32_t token_of_warp, bool goes,
                                 int32_t rank, int32_t row) {
  const uint32_t key = goes ? token_of_warp * kControlPeers + rank : 0x80000000u + LaneId();
  // The token's routes to the same rank, in order of k.
  const uint32_t same = __match_any_sync(0xffffffffu, key);
  const uint32_t later = same & ~((2u << LaneId()) - 1);
  const int32_t next_row = __shfl_sync(0xffffffffu, row, __ffs(later | 0x80000000u) - 1);
  if (!goes || later == 0) return;
  const ShardView& shard = path.shards[rank];
  shard.duplicate_primary[row] = next_row;
  if (__ffs(same) - 1 != LaneId()) return;
  const int expanded = rank == path.rank ? kExpandedAtSource : 0;
  shard.duplicate_ordinal[row] = static_cast<uint8_t>(__popc(later) | kHasDuplicates | expanded);
}

// Every route's weight, and with `links` its link, for this block's tokens: by the warps of the
// block from `first_warp` on.
__device__ inline void SendRoutes(const PathView& path, const SendArguments& send, bool links,
                                  int32_t first_warp) {
  if (send.route_weights == nullptr && !links) return;
  const int32_t topk = path.geometry.topk;
  const int32_t warps = kDispatchThreads / kWarp - first_warp;
  const TokenRange tokens = TokensOfBlock(send.token_count);
  const RoutesOfLane lane(topk);
  const int32_t step = lane.tokens * warps;
#pragma unroll 1
  for (int32_t first = tokens.begin + lane.tokens * (WarpOfBlock() - first_warp);
       first < tokens.end; first += step) {
    const bool is_route = lane.IsRoute(first, tokens.end);
    const int64_t route = int64_t{first} * topk + LaneId();
    const int32_t dst = is_route ? send.plan.dst[route] : kMaskedRoute;
    const bool goes = !IsMasked(dst);
    const int32_t raw = goes ? DecodeRow(dst) : 0;
    const int32_t rank = RankOf(raw, path.logical_rows);
    const int32_t row = LocalRow(raw, path.logical_rows);
    if (goes && send.route_weights != nullptr) {
      path.shards[rank].row_weights[row] = send.route_weights[route];
    }
    if (links) SendLinks(path, lane.token, goes, rank, row);
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SEND_ROUTES_CUH_
