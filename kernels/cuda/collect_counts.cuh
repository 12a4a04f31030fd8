// Step 1 of planning on the device, after the histograms have been exchanged: those of all ranks,
// out of their shards.
#ifndef PERIGEE_KERNELS_CUDA_COLLECT_COUNTS_CUH_
#define PERIGEE_KERNELS_CUDA_COLLECT_COUNTS_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/rank_team.cuh"

namespace perigee {

// A rank's words in its shard, by sequence parity.
__device__ inline const PlanningHeader* HeaderOf(const PathView& path, const OperationMark& mark,
                                                 int32_t rank) {
  return &path.shards[rank].planning[mark.sequence & 1];
}
__device__ inline int32_t TokenCountOf(const PathView& path, const OperationMark& mark,
                                       int32_t rank) {
  const int32_t* count = &HeaderOf(path, mark, rank)->token_count;
  return static_cast<int32_t>(LoadRelaxed(reinterpret_cast<const uint32_t*>(count)));
}

__device__ inline void ReportHistogram(const PathView& path, const OperationMark& mark,
                                       int32_t rank) {
  if (!BreakPath(path)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kEntry);
  report.rank = rank;
  report.expected = int64_t{TokenCountOf(path, mark, rank)} * path.geometry.topk;
  Publish(report, mark, ReportKind::kHistogram);
}

// Copies this member's part of a rank's histogram; the routes in it, of which more than `most` are
// counted as one more than that.
__device__ inline uint32_t CopyHistogram(const PathView& path, const OperationMark& mark,
                                         int32_t rank, const RankTeams& teams, uint32_t most,
                                         int32_t* into) {
  constexpr int kAhead = 4;
  const int32_t experts = path.geometry.experts;
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const auto* histogram =
      reinterpret_cast<const uint32_t*>(path.shards[rank].histograms + parity * experts);
  uint32_t routes = 0;
#pragma unroll 1
  for (int32_t first = teams.member(); first < experts; first += kAhead * teams.members()) {
    uint32_t counts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t expert = first + i * teams.members();
      counts[i] = expert < experts ? LoadRelaxed(histogram + expert) : 0;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t expert = first + i * teams.members();
      if (expert < experts) into[expert] = static_cast<int32_t>(counts[i]);
      routes = min(routes + min(counts[i], most + 1), most + 1);
    }
  }
  return routes;
}

// Copies the ranks' histograms into counts [R, E] and looks whether they can be such: a plan made
// of anything else could lead outside a shard. False where one cannot; the path is broken then.
__device__ inline bool CollectCounts(const PathView& path, const OperationMark& mark,
                                     int32_t* counts) {
  __shared__ uint32_t routes_of_warp[kDispatchThreads / kWarp];
  __shared__ int32_t bad_rank;
  const int32_t ranks = path.geometry.ranks;
  const auto most = static_cast<uint32_t>(path.geometry.routes());  // below 2^31
  const RankTeams teams(ranks);
  if (threadIdx.x == 0) bad_rank = ranks;
#pragma unroll 1
  for (int32_t first = 0; first < ranks; first += teams.at_once()) {
    const int32_t rank = first + teams.team();
    const bool works = rank < ranks;
    int32_t token_count = 0;
    uint32_t routes = 0;
    if (works) {
      token_count = TokenCountOf(path, mark, rank);
      int32_t* into = counts + int64_t{rank} * path.geometry.experts;
      routes = CopyHistogram(path, mark, rank, teams, most, into);
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      routes = min(routes + __shfl_xor_sync(0xffffffffu, routes, offset), most + 1);
    }
    if (LaneId() == 0) routes_of_warp[WarpOfBlock()] = routes;
    __syncthreads();
    if (works && teams.member() == 0) {
      int64_t total = 0;
#pragma unroll 1
      for (int32_t i = 0; i < teams.warps(); ++i) total += routes_of_warp[teams.first_warp() + i];
      const bool can_be = token_count >= 0 && token_count <= path.geometry.tokens &&
                          total <= int64_t{token_count} * path.geometry.topk;
      if (!can_be) atomicMin(&bad_rank, rank);
    }
    __syncthreads();
  }
  if (bad_rank == ranks) return true;
  if (threadIdx.x == 0) ReportHistogram(path, mark, bad_rank);
  return false;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COLLECT_COUNTS_CUH_
