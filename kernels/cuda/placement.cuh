// Steps 2, 3, 5, 6 and 10 of planning on the device, after the histograms have been exchanged.
// Steps are cut by grid barriers (dispatch_kernel.cuh); the blocks share out ranks among them.
#ifndef PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
#define PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/warp_algorithms.cuh"

namespace perigee {

// Copies the histogram of rank `source` out of its shard and looks whether it can be one: a plan
// made of anything else could lead outside a shard. False where it cannot; the path is broken then.
__device__ inline bool CollectCounts(const PathView& path, const OperationMark& mark,
                                     const PlanningScratch& scratch, int32_t source) {
  using Reduce = cub::BlockReduce<int64_t, kDispatchThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ bool good;
  const int64_t experts = path.geometry.experts;
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const ShardView& shard = path.shards[source];
  PlanningHeader header;
  if (threadIdx.x == 0) header = LoadWords(&shard.planning[parity]);
  int64_t total = 0;
  for (int64_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    const auto* words = reinterpret_cast<const uint32_t*>(shard.histograms + parity * experts);
    const auto count = static_cast<int32_t>(LoadRelaxed(words + expert));
    scratch.counts[source * experts + expert] = count;
    total += count < 0 ? INT64_MAX / (2 * experts) : count;
  }
  total = Reduce(storage).Sum(total);
  if (threadIdx.x == 0) {
    const int64_t limit = int64_t{header.token_count} * path.geometry.topk;
    const bool possible = header.token_count >= 0 && header.token_count <= path.geometry.tokens;
    good = possible && total <= limit;
    if (!good && BreakPath(path)) {
      Report& report = path.page->report;
      report.phase = static_cast<uint32_t>(Phase::kEntry);
      report.rank = source;
      report.expected = limit;
      Publish(report, mark, ReportKind::kHistogram);
    }
  }
  __syncthreads();
  return good;
}

// Who gives to a rank, and how much: each receives from one donor at most.
struct Transfers {
  int32_t donor[kControlPeers];  // -1: nobody
  int32_t rows[kControlPeers];
};

// Step 2 by one warp: at most R - 1 rounds over R ranks, of which each lane has up to four.
__device__ inline void BalanceRanks(const int32_t* surplus_of, int32_t ranks,
                                    Transfers& transfers) {
  constexpr int kEach = kControlPeers / kWarp;
  int32_t surplus[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int32_t rank = LaneId() + kWarp * i;
    surplus[i] = rank < ranks ? surplus_of[rank] : 0;
    transfers.donor[rank] = -1;
  }
  __syncwarp();
  while (true) {
    uint64_t most = 0;
    uint64_t least = 0;  // the same order of what is missing
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t rank = LaneId() + kWarp * i;
      if (rank >= ranks) continue;
      most = max(most, PackLargest(surplus[i], rank));
      least = max(least, PackLargest(-surplus[i], rank));
    }
    most = WarpMax(most);
    least = WarpMax(least);
    if (PackedValue(most) <= 0) return;
    const int32_t fullest = PackedIndex(most);
    const int32_t emptiest = PackedIndex(least);
    const int32_t missing = PackedValue(least);
    if (LaneId() == 0) {
      transfers.donor[emptiest] = fullest;
      transfers.rows[emptiest] = missing;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t rank = LaneId() + kWarp * i;
      if (rank == fullest) surplus[i] -= missing;
      if (rank == emptiest) surplus[i] = 0;
    }
  }
}

// Every block for itself: sums over ranks, target loads, and who gives how much to whom. Adds the
// routes of lower ranks to memory.earlier, and leaves each expert's sum in memory.work.
__device__ inline void Balance(const PathView& path, const PlanningScratch& scratch,
                               const PlanningMemory& memory, const PlanView& plan,
                               Transfers& transfers) {
  __shared__ int32_t surplus[kControlPeers];
  __shared__ int32_t total;
  const int32_t ranks = path.geometry.ranks;
  const int32_t experts = path.geometry.experts;
  if (threadIdx.x == 0) total = 0;
  if (threadIdx.x < kControlPeers) surplus[threadIdx.x] = 0;
  __syncthreads();
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t sum = 0;
    int32_t lower = 0;
#pragma unroll 8
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t count = __ldcg(&scratch.counts[int64_t{rank} * experts + expert]);
      if (rank < path.rank) lower += count;
      sum += count;
    }
    memory.earlier[expert] += lower;
    memory.work[expert] = sum;
    // One addition for all lanes with experts of one rank.
    const int32_t home = path.geometry.home_rank(expert);
    const uint32_t same = __match_any_sync(__activemask(), home);
    const int32_t of_home = __reduce_add_sync(same, sum);
    if (__ffs(same) - 1 == LaneId()) {
      atomicAdd(&surplus[home], of_home);
      atomicAdd(&total, of_home);
    }
  }
  __syncthreads();
  for (int32_t rank = threadIdx.x; rank < ranks; rank += kDispatchThreads) {
    if (blockIdx.x == 0) plan.home_load[rank] = surplus[rank];
    surplus[rank] -= total / ranks + (rank < total % ranks ? 1 : 0);
  }
  __syncthreads();
  if (WarpOfBlock() == 0) BalanceRanks(surplus, ranks, transfers);
  __syncthreads();
}

// Step 3 for one donor, by one warp. remaining [E/R] holds the sums of its experts; alloc [E/R, R]
// is theirs.
__device__ inline void SplitDonor(int32_t donor, int32_t ranks, int32_t experts,
                                  const Transfers& transfers, int32_t* remaining, int32_t* alloc) {
  constexpr int kEach = kControlPeers / kWarp;
  const int32_t lane = LaneId();
  for (int32_t expert = lane; expert < experts; expert += kWarp) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      alloc[int64_t{expert} * ranks + rank] = rank == donor ? remaining[expert] : 0;
    }
  }
  int32_t owed[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int32_t rank = lane + kWarp * i;
    owed[i] = rank < ranks && transfers.donor[rank] == donor ? transfers.rows[rank] : 0;
  }
  __syncwarp();
  while (true) {
    uint64_t most = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (lane + kWarp * i < ranks) most = max(most, PackLargest(owed[i], lane + kWarp * i));
    }
    most = WarpMax(most);
    uint64_t fullest = 0;
    for (int32_t expert = lane; expert < experts; expert += kWarp) {
      fullest = max(fullest, PackLargest(remaining[expert], expert));
    }
    fullest = WarpMax(fullest);
    // A donor never owes more than its experts have.
    if (PackedValue(most) <= 0 || PackedValue(fullest) <= 0) return;
    const int32_t receiver = PackedIndex(most);
    const int32_t expert = PackedIndex(fullest);
    const int32_t moved = min(PackedValue(fullest), PackedValue(most));
    if (lane == 0) {
      atomicAdd(&alloc[int64_t{expert} * ranks + receiver], moved);
      atomicSub(&alloc[int64_t{expert} * ranks + donor], moved);
      remaining[expert] -= moved;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (lane + kWarp * i == receiver) owed[i] -= moved;
    }
    __syncwarp();
  }
}

// Step 3: each donor's experts by one warp of one block.
__device__ inline void SplitExperts(const PathView& path, const PlanningScratch& scratch,
                                    const PlanningMemory& memory, const Transfers& transfers) {
  const int32_t ranks = path.geometry.ranks;
  const int32_t experts = path.geometry.experts_per_rank();
  const auto blocks = static_cast<int32_t>(gridDim.x);
  const auto warps = kDispatchThreads / kWarp;
  for (int32_t donor = static_cast<int32_t>(blockIdx.x) + blocks * WarpOfBlock(); donor < ranks;
       donor += blocks * warps) {
    SplitDonor(donor, ranks, experts, transfers, memory.work + donor * experts,
               scratch.alloc + int64_t{donor} * experts * ranks);
  }
}

// Step 5 for rank `rank`: its remote experts, most rows first and of equals the highest id, take
// the slots. An expert's place is the number of those before it.
__device__ inline void FillSlots(const PathView& path, const PlanningScratch& scratch,
                                 const PlanningMemory& memory, const PlanView& plan, int32_t rank) {
  __shared__ int32_t remote_count;
  __shared__ int32_t replicated;
  const Geometry& geometry = path.geometry;
  const int64_t ranks = geometry.ranks;
  const int32_t most = geometry.experts_per_rank();
  int32_t* remote = memory.work;
  int32_t* remote_rows = memory.work + most;
  int32_t* slot_of = scratch.slot_of + int64_t{rank} * geometry.experts;
  int32_t* to_copy = plan.experts_to_copy + int64_t{rank} * geometry.slots;
  for (int32_t slot = threadIdx.x; slot < geometry.slots; slot += kDispatchThreads) {
    to_copy[slot] = -1;
  }
  if (threadIdx.x == 0) remote_count = replicated = 0;
  __syncthreads();
  for (int32_t expert = threadIdx.x; expert < geometry.experts; expert += kDispatchThreads) {
    slot_of[expert] = -1;
    if (geometry.home_rank(expert) == rank) continue;
    const int32_t rows = __ldcg(&scratch.alloc[expert * ranks + rank]);
    if (rows == 0) continue;
    const int32_t place = atomicAdd(&remote_count, 1);
    remote[place] = expert;
    remote_rows[place] = rows;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < remote_count; i += kDispatchThreads) {
    const int32_t expert = remote[i];
    const int32_t rows = remote_rows[i];
    int32_t place = 0;
    for (int32_t j = 0; j < remote_count; ++j) {
      place += remote_rows[j] > rows || (remote_rows[j] == rows && remote[j] > expert) ? 1 : 0;
    }
    if (place >= geometry.slots) continue;
    slot_of[expert] = place;
    to_copy[place] = expert;
    if (geometry.home_rank(expert) == path.rank) atomicAdd(&replicated, 1);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  // The sum over ranks, which other blocks have: zeroed before the last grid barrier.
  if (replicated > 0) atomicAdd(&plan.remote_stats[1], replicated);
  if (rank == path.rank) plan.remote_stats[0] = remote_count;
}

// The expert whose rows group `group` of a rank holds, -1 where it is empty.
__device__ inline int32_t ExpertOfGroup(const Geometry& geometry, const int32_t* slot_of,
                                        const int32_t* to_copy, int32_t group) {
  if (group >= geometry.experts) return to_copy[group - geometry.experts];
  return slot_of[group] < 0 ? group : -1;
}

// Steps 5, 6 and 10 for rank `rank`.
__device__ inline void ArrangeGroups(const PathView& path, const PlanningScratch& scratch,
                                     const PlanningMemory& memory, const PlanView& plan,
                                     int32_t rank) {
  using Scan = cub::BlockScan<int32_t, kDispatchThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ int32_t load;
  const Geometry& geometry = path.geometry;
  if (threadIdx.x == 0) load = 0;
  FillSlots(path, scratch, memory, plan, rank);
  __syncthreads();
  const int32_t* slot_of = scratch.slot_of + int64_t{rank} * geometry.experts;
  const int32_t* to_copy = plan.experts_to_copy + int64_t{rank} * geometry.slots;
  int32_t* group_start = scratch.group_start + int64_t{rank} * geometry.experts;
  const int32_t padding = geometry.token_padding;
  int32_t end = 0;  // of the groups before this round's
  for (int32_t first = 0; first < geometry.groups(); first += kDispatchThreads) {
    const int32_t group = first + static_cast<int32_t>(threadIdx.x);
    const bool is_group = group < geometry.groups();
    const int32_t expert = is_group ? ExpertOfGroup(geometry, slot_of, to_copy, group) : -1;
    const int32_t rows =
        expert >= 0 ? __ldcg(&scratch.alloc[int64_t{expert} * geometry.ranks + rank]) : 0;
    const int32_t blank = rows > 0 ? (padding - rows % padding) % padding : 0;
    int32_t start = 0;
    int32_t sum = 0;
    Scan(storage).ExclusiveSum(rows + blank, start, sum);
    start += end;
    end += sum;
    __syncthreads();  // `storage` is used again
    if (rows > 0) {
      group_start[expert] = start;
      atomicAdd(&load, rows);
    }
    if (!is_group || rank != path.rank) continue;
    plan.cu_seqlens[group] = start + rows + blank;
    plan.zero_fill_ranges[2 * group] = blank > 0 ? start + rows : 0;
    plan.zero_fill_ranges[2 * group + 1] = blank;
  }
  __syncthreads();
  if (threadIdx.x == 0) plan.load[rank] = load;
}

// After the last grid barrier of planning: what routes are placed by, copied where it is near.
__device__ inline void FetchTables(const PathView& path, const PlanningScratch& scratch,
                                   const PlanningMemory& memory) {
  if (!memory.shape.tables_are_shared) return;
  const int32_t words = path.geometry.experts * path.geometry.ranks;
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < words; i += kDispatchThreads) {
    memory.alloc[i] = __ldcg(&scratch.alloc[i]);
    memory.group_start[i] = __ldcg(&scratch.group_start[i]);
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
