// Steps 5, 6 and 10 of planning on the device, by one block: which remote experts a rank gets into
// slots, and where its groups begin. Where its tables fit into shared memory every block does it
// for itself, which costs less than to wait for another that does.
#ifndef PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
#define PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_

#include <cstdint>

#include "kernels/cuda/balance_ranks.cuh"
#include "kernels/cuda/collect_counts.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/rank_team.cuh"
#include "kernels/cuda/warp_algorithms.cuh"

namespace perigee {

// In the place of an expert's group_start: its group is empty, because it has a slot.
inline constexpr int32_t kInSlot = -1;

// Step 5 for the team's rank, by all threads: its remote experts, most rows first and of equals the
// highest id, take the slots. An expert's place is the number of those before it. Leaves those in
// slots, in order, in `in_slots` [E/R]; the number of remote ones for all of the team, and adds
// those whose home is this rank and that have a slot to *replicated, shared by the block.
__device__ inline int32_t FillSlots(const PathView& path, const GroupTables& tables,
                                    const RankTeams& teams, int32_t rank, int32_t* in_slots,
                                    int32_t* replicated) {
  __shared__ int32_t remote_counts[kDispatchThreads / kWarp];
  const Geometry& geometry = path.geometry;
  const int32_t each = geometry.experts_per_rank();
  const bool works = rank < geometry.ranks;
  const int32_t* alloc = tables.alloc + int64_t{rank} * geometry.experts;
  int32_t* group_start = tables.group_start + int64_t{rank} * geometry.experts;
  int32_t* remote = tables.work + geometry.experts + rank * each;
  int32_t* remote_rows = remote + geometry.experts;
  int32_t* remote_count = &remote_counts[teams.team()];
  const int32_t experts = works ? geometry.experts : 0;
  if (teams.member() == 0) *remote_count = 0;
  __syncthreads();
#pragma unroll 1
  for (int32_t expert = teams.member(); expert < experts; expert += teams.members()) {
    group_start[expert] = 0;
    const int32_t rows = alloc[expert];
    const bool is_home = static_cast<uint32_t>(expert - rank * each) < static_cast<uint32_t>(each);
    if (rows == 0 || is_home) continue;
    // All are of one donor, so of E/R experts.
    const int32_t place = atomicAdd(remote_count, 1);
    remote[place] = expert;
    remote_rows[place] = rows;
  }
  __syncthreads();
  const int32_t count = *remote_count;
#pragma unroll 1
  for (int32_t i = teams.member(); i < count; i += teams.members()) {
    const int32_t expert = remote[i];
    const int32_t rows = remote_rows[i];
    int32_t place = 0;
#pragma unroll 2
    for (int32_t j = 0; j < count; ++j) {
      place += remote_rows[j] > rows || (remote_rows[j] == rows && remote[j] > expert) ? 1 : 0;
    }
    if (place >= geometry.slots) continue;
    in_slots[place] = expert;
    group_start[expert] = kInSlot;
    const bool is_own =
        static_cast<uint32_t>(expert - path.rank * each) < static_cast<uint32_t>(each);
    if (is_own) atomicAdd(replicated, 1);
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
  int32_t* slot_starts;  // [E/R] for what follows, by slot
  int32_t slots_used;

  // -1: the group is empty.
  __device__ int32_t ExpertOf(int32_t group) const {
    const int32_t slot = group - geometry.experts;
    if (slot < 0) return group_start[group] == kInSlot ? -1 : group;
    return slot < slots_used ? in_slots[slot] : -1;
  }
  __device__ int32_t RowsOf(int32_t group) const {
    const int32_t expert = ExpertOf(group);
    return expert >= 0 ? alloc[expert] : 0;
  }
  __device__ int32_t Padded(int32_t rows) const {
    const auto padding = static_cast<uint32_t>(geometry.token_padding);
    return static_cast<int32_t>((static_cast<uint32_t>(rows) + padding - 1) / padding * padding);
  }
};

// The sum over the team's members before this one, and over all in *all. All threads.
__device__ inline int32_t SumBefore(const RankTeams& teams, int32_t value, int32_t* all) {
  __shared__ int32_t of_warp[kDispatchThreads / kWarp];
  const int32_t up_to_here = WarpPrefixSum(value);
  if (LaneId() == kWarp - 1) of_warp[WarpOfBlock()] = up_to_here;
  __syncthreads();
  int32_t before = up_to_here - value;
  *all = 0;
#pragma unroll 1
  for (int32_t warp = teams.first_warp(); warp < teams.first_warp() + teams.warps(); ++warp) {
    const int32_t sum = of_warp[warp];
    if (warp < WarpOfBlock()) before += sum;
    *all += sum;
  }
  __syncthreads();  // `of_warp` is used again
  return before;
}

// Steps 6 and 10 for the team's rank, by all threads, a run of groups each; with `writes` their
// part of the plan.
__device__ inline void ArrangeGroups(const RankGroups& groups, const RankTeams& teams, int32_t rank,
                                     const PlanView& plan, bool is_own, bool writes) {
  const Geometry& geometry = groups.geometry;
  const bool works = rank < geometry.ranks;
  const int32_t each = (geometry.groups() + teams.members() - 1) / teams.members();
  const int32_t first = min(teams.member() * each, geometry.groups());
  const int32_t end = works ? min(first + each, geometry.groups()) : first;
  int32_t load = 0;
  int32_t padded = 0;
#pragma unroll 1
  for (int32_t group = first; group < end; ++group) {
    const int32_t rows = groups.RowsOf(group);
    load += rows;
    padded += groups.Padded(rows);
  }
  int32_t all = 0;
  int32_t start = SumBefore(teams, padded, &all);
  SumBefore(teams, load, &all);
#pragma unroll 1
  for (int32_t group = first; group < end; ++group) {
    const int32_t rows = groups.RowsOf(group);
    const int32_t next = start + groups.Padded(rows);
    // Of experts in slots, whose own groups are empty, the mark stays while others look at it.
    if (group >= geometry.experts) {
      if (rows > 0) groups.slot_starts[group - geometry.experts] = start;
    } else if (rows > 0) {
      groups.group_start[group] = start;
    }
    if (writes && is_own) {
      const int32_t filled = start + rows;
      plan.cu_seqlens[group] = next;
      plan.zero_fill_ranges[2 * group] = filled < next ? filled : 0;
      plan.zero_fill_ranges[2 * group + 1] = next - filled;
    }
    start = next;
  }
  __syncthreads();
  const int32_t slots = works ? geometry.slots : 0;
  if (writes && works && teams.member() == 0) plan.load[rank] = all;
#pragma unroll 1
  for (int32_t slot = teams.member(); slot < slots; slot += teams.members()) {
    const int32_t expert = slot < groups.slots_used ? groups.in_slots[slot] : -1;
    if (expert >= 0) groups.group_start[expert] = groups.slot_starts[slot];
    if (writes) plan.experts_to_copy[int64_t{rank} * geometry.slots + slot] = expert;
  }
}

// Steps 2 to 6 and 10, by all threads of the block, which writes the plan's tensors of every
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
  SumCounts(path, counts, sums, tables.lower);
  Balance(path, sums, plan, transfers);
  SplitExperts(geometry, transfers, sums, tables);
  const RankTeams teams(geometry.ranks);
#pragma unroll 1
  for (int32_t first = 0; first < geometry.ranks; first += teams.at_once()) {
    const int32_t rank = first + teams.team();
    const bool is_own = rank == path.rank;
    const bool writes = rank % writers == static_cast<int32_t>(blockIdx.x);
    int32_t* in_slots = tables.work + rank * geometry.experts_per_rank();  // of sums
    const int32_t remote = FillSlots(path, tables, teams, rank, in_slots, &replicated);
    const int64_t row = int64_t{rank} * geometry.experts;
    int32_t* slot_starts = in_slots + 2 * geometry.experts;  // of FillSlots' remote rows
    ArrangeGroups({geometry, tables.alloc + row, tables.group_start + row, in_slots, slot_starts,
                   min(remote, geometry.slots)},
                  teams, rank, plan, is_own, writes);
    if (is_own && teams.member() == 0 && blockIdx.x == 0) plan.remote_stats[0] = remote;
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) plan.remote_stats[1] = replicated;
  return true;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLACEMENT_CUH_
