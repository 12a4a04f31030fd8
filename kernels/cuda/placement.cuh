// Steps 2, 3, 5, 6 and 10 of planning on the device, after the histograms have been exchanged: by
// one block, without a word to others. Where its tables fit into shared memory every block does it
// for itself, which costs less than to wait for another that does.
#ifndef PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
#define PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/warp_algorithms.cuh"

namespace perigee {

// Whether `counts` [E] can be the histogram of that many tokens' routes. One warp, alike for all
// its lanes.
__device__ inline bool IsHistogram(const Geometry& geometry, const int32_t* counts,
                                   int32_t token_count) {
  int64_t total = 0;
  bool negative = false;
  for (int32_t expert = LaneId(); expert < geometry.experts; expert += kWarp) {
    negative = negative || counts[expert] < 0;
    total += counts[expert];
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, offset);
  }
  if (__any_sync(0xffffffffu, negative) != 0) return false;
  return token_count >= 0 && token_count <= geometry.tokens &&
         total <= int64_t{token_count} * geometry.topk;
}

// Copies the ranks' histograms out of their shards into counts [R, E] and looks whether they can be
// such: a plan made of anything else could lead outside a shard. False where one cannot; the path
// is broken then.
__device__ inline bool CollectCounts(const PathView& path, const OperationMark& mark,
                                     int32_t* counts) {
  __shared__ int32_t token_counts[kControlPeers];
  __shared__ int32_t bad_rank;
  const int32_t ranks = path.geometry.ranks;
  const int32_t experts = path.geometry.experts;
  const auto parity = static_cast<int64_t>(mark.sequence & 1);
  if (threadIdx.x == 0) bad_rank = ranks;
  if (static_cast<int32_t>(threadIdx.x) < ranks) {
    const PlanningHeader header = LoadWords(&path.shards[threadIdx.x].planning[parity]);
    token_counts[threadIdx.x] = header.token_count;
  }
  const int64_t words = int64_t{ranks} * experts;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < words; i += kDispatchThreads) {
    const auto rank = static_cast<int32_t>(i / experts);
    const auto* histogram =
        reinterpret_cast<const uint32_t*>(path.shards[rank].histograms + parity * experts);
    counts[i] = static_cast<int32_t>(LoadRelaxed(histogram + (i - int64_t{rank} * experts)));
  }
  __syncthreads();
  for (int32_t rank = WarpOfBlock(); rank < ranks; rank += kDispatchThreads / kWarp) {
    if (IsHistogram(path.geometry, counts + int64_t{rank} * experts, token_counts[rank])) continue;
    if (LaneId() == 0) atomicMin(&bad_rank, rank);
  }
  __syncthreads();
  if (bad_rank == ranks) return true;
  if (threadIdx.x == 0 && BreakPath(path)) {
    Report& report = path.page->report;
    report.phase = static_cast<uint32_t>(Phase::kEntry);
    report.rank = bad_rank;
    report.expected = int64_t{token_counts[bad_rank]} * path.geometry.topk;
    Publish(report, mark, ReportKind::kHistogram);
  }
  return false;
}

// Who gives to a rank, and how much: each receives from one donor at most.
struct Transfers {
  int32_t donor[kControlPeers];  // -1: nobody
  int32_t rows[kControlPeers];
};
// Ranks that a lane looks after, where one warp works for all.
inline constexpr int kRanksPerLane = kControlPeers / kWarp;

// Step 2 by one warp: at most R - 1 rounds over R ranks.
__device__ inline void BalanceRanks(const int32_t* surplus_of, int32_t ranks,
                                    Transfers& transfers) {
  int32_t surplus[kRanksPerLane];
#pragma unroll
  for (int i = 0; i < kRanksPerLane; ++i) {
    const int32_t rank = LaneId() + kWarp * i;
    surplus[i] = rank < ranks ? surplus_of[rank] : 0;
    transfers.donor[rank] = -1;
  }
  __syncwarp();
  while (true) {
    Found most;
    Found least;  // the same of what is missing
#pragma unroll
    for (int i = 0; i < kRanksPerLane; ++i) {
      const int32_t rank = LaneId() + kWarp * i;
      if (rank >= ranks) continue;
      KeepLargest(most, {surplus[i], rank});
      KeepLargest(least, {-surplus[i], rank});
    }
    most = WarpLargest(most);
    if (most.value <= 0) return;
    least = WarpLargest(least);
    if (LaneId() == 0) {
      transfers.donor[least.index] = most.index;
      transfers.rows[least.index] = least.value;
    }
#pragma unroll
    for (int i = 0; i < kRanksPerLane; ++i) {
      const int32_t rank = LaneId() + kWarp * i;
      if (rank == most.index) surplus[i] -= least.value;
      if (rank == least.index) surplus[i] = 0;
    }
  }
}

// Sums over the ranks' counts [R, E], target loads, and who gives how much to whom. Leaves each
// expert's sum in sums [E] and that of lower ranks in lower [E].
__device__ inline void Balance(const PathView& path, const int32_t* counts, int32_t* sums,
                               int32_t* lower, const PlanView& plan, Transfers& transfers) {
  __shared__ int32_t surplus[kControlPeers];
  __shared__ int32_t total;
  const int32_t ranks = path.geometry.ranks;
  const int32_t experts = path.geometry.experts;
  if (threadIdx.x == 0) total = 0;
  if (threadIdx.x < kControlPeers) surplus[threadIdx.x] = 0;
  __syncthreads();
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    int32_t sum = 0;
    int32_t of_lower = 0;
#pragma unroll 8
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t count = counts[int64_t{rank} * experts + expert];
      if (rank < path.rank) of_lower += count;
      sum += count;
    }
    lower[expert] = of_lower;
    sums[expert] = sum;
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

// Step 3 for one donor, by one warp: `sums` [E] loses what the donor gives away, and alloc, where
// all lies at home, changes with it.
__device__ inline void SplitDonor(const Geometry& geometry, int32_t donor,
                                  const Transfers& transfers, int32_t* sums,
                                  const GroupTables& tables) {
  const int32_t ranks = geometry.ranks;
  const int32_t begin = donor * geometry.experts_per_rank();
  const int32_t end = begin + geometry.experts_per_rank();
  const int32_t lane = LaneId();
  int32_t owed[kRanksPerLane];
#pragma unroll
  for (int i = 0; i < kRanksPerLane; ++i) {
    const int32_t rank = lane + kWarp * i;
    owed[i] = rank < ranks && transfers.donor[rank] == donor ? transfers.rows[rank] : 0;
  }
  while (true) {
    Found most;
#pragma unroll
    for (int i = 0; i < kRanksPerLane; ++i) KeepLargest(most, {owed[i], lane + kWarp * i});
    most = WarpLargest(most);
    if (most.value <= 0) return;
    Found fullest;
    for (int32_t expert = begin + lane; expert < end; expert += kWarp) {
      KeepLargest(fullest, {sums[expert], expert});
    }
    fullest = WarpLargest(fullest);
    // A donor never owes more than its experts have.
    if (fullest.value <= 0) return;
    const int32_t moved = min(fullest.value, most.value);
    if (lane == 0) {
      tables.alloc[int64_t{most.index} * geometry.experts + fullest.index] += moved;
      tables.alloc[int64_t{donor} * geometry.experts + fullest.index] -= moved;
      tables.whole_at[fullest.index] = -1;
      sums[fullest.index] -= moved;
    }
#pragma unroll
    for (int i = 0; i < kRanksPerLane; ++i) {
      if (lane + kWarp * i == most.index) owed[i] -= moved;
    }
    __syncwarp();
  }
}

// Step 3, by all threads.
__device__ inline void SplitExperts(const Geometry& geometry, const Transfers& transfers,
                                    int32_t* sums, const GroupTables& tables) {
  const int32_t each = geometry.experts_per_rank();
  for (int32_t expert = threadIdx.x; expert < geometry.experts; expert += kDispatchThreads) {
    tables.whole_at[expert] = geometry.home_rank(expert);
  }
  const int64_t words = int64_t{geometry.ranks} * geometry.experts;
  for (int64_t i = threadIdx.x; i < words; i += kDispatchThreads) {
    const auto rank = static_cast<int32_t>(i / geometry.experts);
    const auto expert = static_cast<int32_t>(i - int64_t{rank} * geometry.experts);
    const bool is_home = expert >= rank * each && expert < (rank + 1) * each;
    tables.alloc[i] = is_home ? sums[expert] : 0;
  }
  __syncthreads();
  for (int32_t donor = WarpOfBlock(); donor < geometry.ranks; donor += kDispatchThreads / kWarp) {
    SplitDonor(geometry, donor, transfers, sums, tables);
  }
  __syncthreads();
}

// The threads that work for one rank: as many for each as there are, whole warps.
struct RankTeam {
  int32_t rank = 0;
  int32_t member = 0;
  int32_t members = 0;

  // Ranks [first, first + at_once) at a time; a team past the last rank has no work.
  __device__ static int32_t AtOnce(int32_t ranks) {
    int32_t at_once = 1;
    while (at_once < ranks && at_once < kDispatchThreads / kWarp) at_once *= 2;
    return at_once;
  }
  __device__ static RankTeam Of(int32_t first, int32_t at_once) {
    const int32_t members = kDispatchThreads / at_once;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    return {first + thread / members, thread % members, members};
  }
};

// In the place of an expert's group_start: its group is empty, because it has a slot.
inline constexpr int32_t kInSlot = -1;

// Step 5 for the team's rank, by all threads: its remote experts, most rows first and of equals the
// highest id, take the slots. An expert's place is the number of those before it. Leaves those in
// slots, in order, in `in_slots` [E/R]; the number of remote ones for all of the team, and adds
// those whose home is this rank and that have a slot to *replicated, shared by the block.
__device__ inline int32_t FillSlots(const PathView& path, const GroupTables& tables,
                                    const RankTeam& team, int32_t* in_slots, int32_t* replicated) {
  __shared__ int32_t remote_counts[kDispatchThreads / kWarp];
  const Geometry& geometry = path.geometry;
  const int32_t each = geometry.experts_per_rank();
  const int64_t row = int64_t{team.rank} * geometry.experts;
  int32_t* remote = tables.work + geometry.experts + team.rank * each;
  int32_t* remote_rows = remote + geometry.experts;
  int32_t* remote_count = &remote_counts[threadIdx.x / team.members];
  const bool works = team.rank < geometry.ranks;
  if (team.member == 0) *remote_count = 0;
  __syncthreads();
  for (int32_t expert = team.member; works && expert < geometry.experts; expert += team.members) {
    tables.group_start[row + expert] = 0;
    const int32_t rows = tables.alloc[row + expert];
    if (rows == 0 || (expert >= team.rank * each && expert < (team.rank + 1) * each)) continue;
    // All are of one donor, so of E/R experts.
    const int32_t place = atomicAdd(remote_count, 1);
    remote[place] = expert;
    remote_rows[place] = rows;
  }
  __syncthreads();
  const int32_t count = *remote_count;
  for (int32_t i = team.member; works && i < count; i += team.members) {
    const int32_t expert = remote[i];
    const int32_t rows = remote_rows[i];
    int32_t place = 0;
    for (int32_t j = 0; j < count; ++j) {
      place += remote_rows[j] > rows || (remote_rows[j] == rows && remote[j] > expert) ? 1 : 0;
    }
    if (place >= geometry.slots) continue;
    in_slots[place] = expert;
    tables.group_start[row + expert] = kInSlot;
    if (geometry.home_rank(expert) == path.rank) atomicAdd(replicated, 1);
  }
  __syncthreads();
  return count;
}

// The groups of one rank, when its slots are filled.
struct RankGroups {
  const Geometry& geometry;
  const int32_t* alloc;  // [E] of the rank
  int32_t* group_start;  // likewise
  const int32_t* in_slots;
  int32_t slots_used;

  // -1: the group is empty.
  __device__ int32_t ExpertOf(int32_t group) const {
    const int32_t slot = group - geometry.experts;
    if (slot < 0) return group_start[group] == kInSlot ? -1 : group;
    return slot < slots_used ? in_slots[slot] : -1;
  }
  __device__ int32_t Padding(int32_t rows) const {
    const int32_t padding = geometry.token_padding;
    return (rows + padding - 1) / padding * padding - rows;
  }
};

// Where a team's warps have come to.
struct TeamSums {
  int32_t warp[2][kDispatchThreads / kWarp];  // by turns
  int32_t load[kDispatchThreads / kWarp];     // by team
};

// Steps 6 and 10 for the team's rank, by all threads; with `writes` their part of the plan.
__device__ inline void ArrangeGroups(const RankGroups& groups, const RankTeam& team,
                                     const PlanView& plan, bool is_own, bool writes) {
  __shared__ TeamSums sums;
  const Geometry& geometry = groups.geometry;
  const bool works = team.rank < geometry.ranks;
  const auto team_index = static_cast<int32_t>(threadIdx.x) / team.members;
  const int32_t first_warp = team_index * (team.members / kWarp);
  if (team.member == 0) sums.load[team_index] = 0;
  int32_t end = 0;  // of the groups before this round's
  int32_t load = 0;
  int turn = 0;
  for (int32_t first = 0; first < geometry.groups(); first += team.members, turn ^= 1) {
    const int32_t group = first + team.member;
    const bool is_group = works && group < geometry.groups();
    const int32_t expert = is_group ? groups.ExpertOf(group) : -1;
    const int32_t rows = expert >= 0 ? groups.alloc[expert] : 0;
    const int32_t blank = groups.Padding(rows);
    const int32_t up_to_here = WarpPrefixSum(rows + blank);
    if (LaneId() == kWarp - 1) sums.warp[turn][WarpOfBlock()] = up_to_here;
    __syncthreads();
    int32_t start = end + up_to_here - rows - blank;
    for (int32_t warp = first_warp; warp < first_warp + team.members / kWarp; ++warp) {
      const int32_t sum = sums.warp[turn][warp];
      if (warp < WarpOfBlock()) start += sum;
      end += sum;
    }
    // Of experts in slots the mark goes: their own groups, which are empty, have been looked at.
    if (rows > 0) groups.group_start[expert] = start;
    load += rows;
    if (!writes || !is_own || !is_group) continue;
    plan.cu_seqlens[group] = start + rows + blank;
    plan.zero_fill_ranges[2 * group] = blank > 0 ? start + rows : 0;
    plan.zero_fill_ranges[2 * group + 1] = blank;
  }
  load = __reduce_add_sync(0xffffffffu, load);
  if (LaneId() == 0) atomicAdd(&sums.load[team_index], load);
  __syncthreads();
  if (!writes || !works) return;
  if (team.member == 0) plan.load[team.rank] = sums.load[team_index];
  for (int32_t slot = team.member; slot < geometry.slots; slot += team.members) {
    plan.experts_to_copy[int64_t{team.rank} * geometry.slots + slot] =
        slot < groups.slots_used ? groups.in_slots[slot] : -1;
  }
}

// All of these steps, by all threads of the block, which writes the plan's tensors of every
// `writers`-th rank. False where a peer's histogram is none.
__device__ inline bool PlaceGroups(const PathView& path, const OperationMark& mark,
                                   const GroupTables& tables, const PlanView& plan,
                                   int32_t writers) {
  __shared__ Transfers transfers;
  __shared__ int32_t replicated;
  const Geometry& geometry = path.geometry;
  int32_t* counts = tables.group_start;  // until groups begin somewhere
  int32_t* sums = tables.work;
  if (threadIdx.x == 0) replicated = 0;
  if (!CollectCounts(path, mark, counts)) return false;
  Balance(path, counts, sums, tables.lower, plan, transfers);
  SplitExperts(geometry, transfers, sums, tables);
  const int32_t at_once = RankTeam::AtOnce(geometry.ranks);
  for (int32_t first = 0; first < geometry.ranks; first += at_once) {
    const RankTeam team = RankTeam::Of(first, at_once);
    const bool is_own = team.rank == path.rank;
    const bool writes = team.rank % writers == static_cast<int32_t>(blockIdx.x);
    int32_t* in_slots = tables.work + team.rank * geometry.experts_per_rank();  // of sums
    const int32_t remote = FillSlots(path, tables, team, in_slots, &replicated);
    const int64_t row = int64_t{team.rank} * geometry.experts;
    ArrangeGroups({geometry, tables.alloc + row, tables.group_start + row, in_slots,
                   min(remote, geometry.slots)},
                  team, plan, is_own, writes);
    if (is_own && team.member == 0 && blockIdx.x == 0) plan.remote_stats[0] = remote;
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) plan.remote_stats[1] = replicated;
  return true;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
