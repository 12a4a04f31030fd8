// Steps 1 to 6 and 10 of planning on the device, after the histograms have been exchanged.
#ifndef PERIGEE_KERNELS_CUDA_PLACEMENT_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PLACEMENT_KERNEL_CUH_

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/block_algorithms.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_launch.h"

namespace perigee {

inline constexpr int kPlacementThreads = 256;

// Block r copies rank r's histogram out of its shard and looks whether it can be one: a plan made
// of anything else could lead outside a shard.
__global__ void __launch_bounds__(kPlacementThreads)
    CollectCountsKernel(PathView path, OperationMark mark, PlanningScratch scratch) {
  if (Stopped(path)) return;
  using Reduce = cub::BlockReduce<int64_t, kPlacementThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const auto source = static_cast<int32_t>(blockIdx.x);
  const int64_t experts = path.geometry.experts;
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  const ShardView& shard = path.shards[source];
  int64_t total = 0;
  for (int64_t expert = threadIdx.x; expert < experts; expert += blockDim.x) {
    const auto* words = reinterpret_cast<const uint32_t*>(shard.histograms + parity * experts);
    const auto count = static_cast<int32_t>(LoadRelaxed(words + expert));
    scratch.counts[source * experts + expert] = count;
    total += count < 0 ? INT64_MAX / (2 * experts) : count;
  }
  total = Reduce(storage).Sum(total);
  if (threadIdx.x != 0) return;
  const PlanningHeader header = LoadWords(&shard.planning[parity]);
  const int64_t limit = int64_t{header.token_count} * path.geometry.topk;
  const bool possible = header.token_count >= 0 && header.token_count <= path.geometry.tokens;
  if (possible && total <= limit) return;
  if (!BreakPath(path)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kEntry);
  report.rank = source;
  report.expected = limit;
  Publish(report, mark, ReportKind::kHistogram);
}

// Step 2 by one thread of few numbers: at most R - 1 rounds over R ranks.
__device__ inline void BalanceRanks(int32_t* surplus, int32_t ranks, int32_t* transfers) {
  while (true) {
    int32_t fullest = 0;
    int32_t emptiest = 0;
    for (int32_t rank = 1; rank < ranks; ++rank) {
      if (surplus[rank] > surplus[fullest]) fullest = rank;
      if (surplus[rank] < surplus[emptiest]) emptiest = rank;
    }
    if (surplus[fullest] <= 0) return;
    transfers[fullest * ranks + emptiest] = -surplus[emptiest];
    surplus[fullest] += surplus[emptiest];
    surplus[emptiest] = 0;
  }
}

// One block. Sums over ranks, target loads, and who gives how much to whom.
__global__ void __launch_bounds__(kPlacementThreads)
    BalanceKernel(PathView path, PlanningScratch scratch, PlanView plan) {
  if (Stopped(path)) return;
  __shared__ int32_t surplus[kControlPeers];
  __shared__ int32_t total;
  const int32_t ranks = path.geometry.ranks;
  const int32_t experts = path.geometry.experts;
  if (threadIdx.x == 0) total = 0;
  if (threadIdx.x < kControlPeers) surplus[threadIdx.x] = 0;
  for (int32_t i = threadIdx.x; i < ranks * ranks; i += blockDim.x) scratch.transfers[i] = 0;
  if (threadIdx.x < 2) plan.remote_stats[threadIdx.x] = 0;
  __syncthreads();
  for (int32_t expert = threadIdx.x; expert < experts; expert += blockDim.x) {
    int32_t sum = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      if (rank == path.rank) scratch.before[expert] = sum;
      sum += scratch.counts[static_cast<int64_t>(rank) * experts + expert];
    }
    scratch.remaining[expert] = sum;
    atomicAdd(&surplus[path.geometry.home_rank(expert)], sum);
    atomicAdd(&total, sum);
  }
  __syncthreads();
  for (int32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
    plan.home_load[rank] = surplus[rank];
    surplus[rank] -= total / ranks + (rank < total % ranks ? 1 : 0);
  }
  __syncthreads();
  if (threadIdx.x == 0) BalanceRanks(surplus, ranks, scratch.transfers);
}

// Step 3. Block h shares out what home rank h gives away among its experts.
__global__ void __launch_bounds__(kPlacementThreads)
    SplitKernel(PathView path, PlanningScratch scratch) {
  if (Stopped(path)) return;
  __shared__ int32_t owed[kControlPeers];
  __shared__ uint64_t shared[kPlacementThreads / 32];
  const auto donor = static_cast<int32_t>(blockIdx.x);
  const int32_t ranks = path.geometry.ranks;
  const int32_t epn = path.geometry.experts_per_rank();
  int32_t* remaining = scratch.remaining + donor * epn;
  int32_t* alloc = scratch.alloc + int64_t{donor} * epn * ranks;  // [epn, R]
  for (int64_t i = threadIdx.x; i < int64_t{epn} * ranks; i += blockDim.x) {
    alloc[i] = i % ranks == donor ? remaining[i / ranks] : 0;
  }
  if (threadIdx.x < ranks) owed[threadIdx.x] = scratch.transfers[donor * ranks + threadIdx.x];
  __syncthreads();
  while (true) {
    int32_t wanted;
    int32_t left;
    const int32_t receiver = BlockArgMax(owed, ranks, shared, &wanted);
    if (wanted <= 0) return;
    const int32_t expert = BlockArgMax(remaining, epn, shared, &left);
    if (left <= 0) return;  // a donor never owes more than its experts have
    if (threadIdx.x == 0) {
      const int32_t moved = min(left, wanted);
      alloc[int64_t{expert} * ranks + receiver] += moved;
      alloc[int64_t{expert} * ranks + donor] -= moved;
      owed[receiver] -= moved;
      remaining[expert] -= moved;
    }
    __syncthreads();
  }
}

// Step 5 for rank `rank`: its remote experts, most rows first and of equals the highest id, take
// the slots. An expert's place is the number of those before it.
__device__ inline void FillSlots(const PathView& path, const PlanningScratch& scratch,
                                 const PlanView& plan, int32_t rank, int32_t* remote_count) {
  const Geometry& geometry = path.geometry;
  const int64_t ranks = geometry.ranks;
  int32_t* remote = scratch.remote + rank * geometry.experts_per_rank();
  int32_t* slot_of = scratch.slot_of + int64_t{rank} * geometry.experts;
  int32_t* to_copy = plan.experts_to_copy + int64_t{rank} * geometry.slots;
  for (int32_t slot = threadIdx.x; slot < geometry.slots; slot += blockDim.x) to_copy[slot] = -1;
  if (threadIdx.x == 0) *remote_count = 0;
  __syncthreads();
  for (int32_t expert = threadIdx.x; expert < geometry.experts; expert += blockDim.x) {
    slot_of[expert] = -1;
    if (geometry.home_rank(expert) == rank || scratch.alloc[expert * ranks + rank] == 0) continue;
    remote[atomicAdd(remote_count, 1)] = expert;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < *remote_count; i += blockDim.x) {
    const int32_t expert = remote[i];
    const int32_t rows = scratch.alloc[expert * ranks + rank];
    int32_t place = 0;
    for (int32_t j = 0; j < *remote_count; ++j) {
      const int32_t other_rows = scratch.alloc[remote[j] * ranks + rank];
      place += other_rows > rows || (other_rows == rows && remote[j] > expert) ? 1 : 0;
    }
    if (place >= geometry.slots) continue;
    slot_of[expert] = place;
    to_copy[place] = expert;
    if (geometry.home_rank(expert) == path.rank) atomicAdd(&plan.remote_stats[1], 1);
  }
  if (threadIdx.x == 0 && rank == path.rank) plan.remote_stats[0] = *remote_count;
  __syncthreads();
}

// The expert whose rows group `group` of a rank holds, -1 where it is empty.
__device__ inline int32_t ExpertOfGroup(const Geometry& geometry, const int32_t* slot_of,
                                        const int32_t* to_copy, int32_t group) {
  if (group >= geometry.experts) return to_copy[group - geometry.experts];
  return slot_of[group] < 0 ? group : -1;
}

// Steps 5, 6 and 10. Block d arranges the groups of rank d.
__global__ void __launch_bounds__(kPlacementThreads)
    ArrangeGroupsKernel(PathView path, PlanningScratch scratch, PlanView plan) {
  if (Stopped(path)) return;
  using Scan = cub::BlockScan<int32_t, kPlacementThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ int32_t remote_count;
  __shared__ int32_t load;
  const auto rank = static_cast<int32_t>(blockIdx.x);
  const Geometry& geometry = path.geometry;
  if (threadIdx.x == 0) load = 0;
  FillSlots(path, scratch, plan, rank, &remote_count);
  const int32_t* slot_of = scratch.slot_of + int64_t{rank} * geometry.experts;
  const int32_t* to_copy = plan.experts_to_copy + int64_t{rank} * geometry.slots;
  int32_t* group_start = scratch.group_start + int64_t{rank} * geometry.experts;
  const int32_t padding = geometry.token_padding;
  int32_t end = 0;  // of the groups before this round's
  for (int32_t first = 0; first < geometry.groups(); first += kPlacementThreads) {
    const int32_t group = first + static_cast<int32_t>(threadIdx.x);
    const bool is_group = group < geometry.groups();
    const int32_t expert = is_group ? ExpertOfGroup(geometry, slot_of, to_copy, group) : -1;
    const int32_t rows = expert >= 0 ? scratch.alloc[int64_t{expert} * geometry.ranks + rank] : 0;
    const int32_t blank = (padding - rows % padding) % padding;
    int32_t start = 0;
    int32_t sum = 0;
    Scan(storage).ExclusiveSum(rows + (rows > 0 ? blank : 0), start, sum);
    start += end;
    end += sum;
    __syncthreads();  // `storage` is used again
    if (rows > 0) {
      group_start[expert] = start;
      atomicAdd(&load, rows);
    }
    if (!is_group || rank != path.rank) continue;
    const bool padded = rows > 0 && blank > 0;
    plan.cu_seqlens[group] = start + rows + (rows > 0 ? blank : 0);
    plan.zero_fill_ranges[2 * group] = padded ? start + rows : 0;
    plan.zero_fill_ranges[2 * group + 1] = padded ? blank : 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) plan.load[rank] = load;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLACEMENT_KERNEL_CUH_
