// Steps 2 and 3 of planning on the device, by one block: who computes how many of whose routes.
#ifndef PERIGEE_KERNELS_CUDA_BALANCE_RANKS_CUH_
#define PERIGEE_KERNELS_CUDA_BALANCE_RANKS_CUH_

#include <cstdint>

#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/rank_team.cuh"
#include "kernels/cuda/warp_algorithms.cuh"

namespace perigee {

// Who gives to a rank, and how much: each receives from one donor at most.
struct Transfers {
  int32_t donor[kControlPeers];  // -1: nobody
  int32_t rows[kControlPeers];
};

// A number for each rank, in the registers of one warp.
class RankValues {
 public:
  // value_of(rank) for every rank. All lanes.
  template <typename ValueOf>
  __device__ RankValues(int32_t ranks, const ValueOf& value_of) : ranks_(ranks) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t rank = RankAt(i);
      values_[i] = rank < ranks ? value_of(rank) : 0;
    }
  }
  // The greatest and the least, of equals with the lowest rank; the least as its negative.
  __device__ Found Largest() const { return Find(1); }
  __device__ Found Least() const { return Find(-1); }
  __device__ void Subtract(int32_t from, int32_t amount) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (RankAt(i) == from) values_[i] -= amount;
    }
  }

 private:
  static constexpr int kPerLane = kControlPeers / kWarp;

  __device__ static int32_t RankAt(int i) { return LaneId() + kWarp * i; }
  __device__ Found Find(int32_t sign) const {
    Found found;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (kWarp * i >= ranks_) break;
      if (RankAt(i) < ranks_) KeepLargest(found, {sign * values_[i], RankAt(i)});
    }
    return WarpLargest(found);
  }

  int32_t values_[kPerLane];
  int32_t ranks_;
};

// Each expert's routes in sums [E], and those of lower ranks in lower [E].
__device__ inline void SumCounts(const PathView& path, const int32_t* counts, int32_t* sums,
                                 int32_t* lower) {
  const int32_t experts = path.geometry.experts;
#pragma unroll 1
  for (int32_t expert = threadIdx.x; expert < experts; expert += kDispatchThreads) {
    const int32_t* count = counts + expert;
    int32_t sum = 0;
    int32_t of_lower = 0;
#pragma unroll 1
    for (int32_t rank = 0; rank < path.geometry.ranks; ++rank, count += experts) {
      if (rank == path.rank) of_lower = sum;
      sum += *count;
    }
    lower[expert] = of_lower;
    sums[expert] = sum;
  }
  __syncthreads();
}

// Step 2 by one warp, from the routes to each rank's home experts: at most R - 1 rounds.
__device__ inline void MakeTransfers(const int32_t* home_load, int32_t ranks,
                                     Transfers& transfers) {
  uint32_t total = 0;
#pragma unroll 1
  for (int32_t rank = LaneId(); rank < ranks; rank += kWarp) {
    transfers.donor[rank] = -1;
    total += home_load[rank];
  }
  total = __reduce_add_sync(0xffffffffu, total);
  const auto share = static_cast<int32_t>(total / ranks);
  const int32_t rest = static_cast<int32_t>(total) - share * ranks;
  RankValues surplus(ranks,
                     [&](int32_t rank) { return home_load[rank] - share - (rank < rest ? 1 : 0); });
  __syncwarp();
#pragma unroll 1
  while (true) {
    const Found most = surplus.Largest();
    if (most.value <= 0) return;
    const Found least = surplus.Least();
    if (LaneId() == 0) {
      transfers.donor[least.index] = most.index;
      transfers.rows[least.index] = least.value;
    }
    surplus.Subtract(most.index, least.value);
    surplus.Subtract(least.index, -least.value);
  }
}

// Target loads, and who gives how much to whom; sums [E] are each expert's routes.
__device__ inline void Balance(const PathView& path, const int32_t* sums, const PlanView& plan,
                               Transfers& transfers) {
  __shared__ int32_t home_load[kControlPeers];
  const int32_t ranks = path.geometry.ranks;
  const int32_t each = path.geometry.experts_per_rank();
#pragma unroll 1
  for (int32_t rank = WarpOfBlock(); rank < ranks; rank += kDispatchThreads / kWarp) {
    int32_t load = 0;
#pragma unroll 1
    for (int32_t i = LaneId(); i < each; i += kWarp) load += sums[rank * each + i];
    load = __reduce_add_sync(0xffffffffu, load);
    if (LaneId() != 0) continue;
    home_load[rank] = load;
    if (blockIdx.x == 0) plan.home_load[rank] = load;
  }
  __syncthreads();
  if (WarpOfBlock() == 0) MakeTransfers(home_load, ranks, transfers);
  __syncthreads();
}

// Step 3 for one donor, by one warp: `sums` [E] loses what the donor gives away, and alloc, where
// all lies at home, changes with it.
__device__ inline void SplitDonor(const Geometry& geometry, int32_t donor,
                                  const Transfers& transfers, int32_t* sums,
                                  const GroupTables& tables) {
  const int32_t each = geometry.experts_per_rank();
  const int32_t begin = donor * each;
  RankValues owed(geometry.ranks, [&](int32_t rank) {
    return transfers.donor[rank] == donor ? transfers.rows[rank] : 0;
  });
#pragma unroll 1
  while (true) {
    const Found most = owed.Largest();
    if (most.value <= 0) return;
    Found fullest;
#pragma unroll 1
    for (int32_t expert = begin + LaneId(); expert < begin + each; expert += kWarp) {
      KeepLargest(fullest, {sums[expert], expert});
    }
    fullest = WarpLargest(fullest);
    // A donor never owes more than its experts have.
    if (fullest.value <= 0) return;
    const int32_t moved = min(fullest.value, most.value);
    if (LaneId() == 0) {
      tables.alloc[int64_t{most.index} * geometry.experts + fullest.index] += moved;
      tables.alloc[int64_t{donor} * geometry.experts + fullest.index] -= moved;
      tables.whole_at[fullest.index] = -1;
      sums[fullest.index] -= moved;
    }
    owed.Subtract(most.index, moved);
    __syncwarp();
  }
}

// Step 3, by all threads.
__device__ inline void SplitExperts(const Geometry& geometry, const Transfers& transfers,
                                    int32_t* sums, const GroupTables& tables) {
  const int32_t each = geometry.experts_per_rank();
  const RankTeams teams(geometry.ranks);
#pragma unroll 1
  for (int32_t rank = teams.team(); rank < geometry.ranks; rank += teams.at_once()) {
    int32_t* alloc = tables.alloc + int64_t{rank} * geometry.experts;
#pragma unroll 1
    for (int32_t expert = teams.member(); expert < geometry.experts; expert += teams.members()) {
      const bool is_home =
          static_cast<uint32_t>(expert - rank * each) < static_cast<uint32_t>(each);
      alloc[expert] = is_home ? sums[expert] : 0;
      if (is_home) tables.whole_at[expert] = rank;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int32_t donor = WarpOfBlock(); donor < geometry.ranks; donor += kDispatchThreads / kWarp) {
    SplitDonor(geometry, donor, transfers, sums, tables);
  }
  __syncthreads();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_BALANCE_RANKS_CUH_
