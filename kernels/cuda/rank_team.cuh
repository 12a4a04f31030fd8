// How the threads of a block share out work that has to be done for every rank.
#ifndef PERIGEE_KERNELS_CUDA_RANK_TEAM_CUH_
#define PERIGEE_KERNELS_CUDA_RANK_TEAM_CUH_

#include <cstdint>

#include "kernels/cuda/planning_memory.cuh"

namespace perigee {

// Divides the threads of a dispatch's block into teams of whole warps, as many as there are ranks
// where that can be.
class RankTeams {
 public:
  __device__ explicit RankTeams(int32_t ranks) : shift_(kMostShift) {
    while (shift_ > kLeastShift && at_once() < ranks) --shift_;
  }
  // Ranks [first, first + at_once()) have a team each; a team past the last rank has no work.
  __device__ int32_t at_once() const { return kDispatchThreads >> shift_; }
  __device__ int32_t members() const { return 1 << shift_; }
  __device__ int32_t warps() const { return members() / kWarp; }

  // Of this thread.
  __device__ int32_t team() const { return static_cast<int32_t>(threadIdx.x) >> shift_; }
  __device__ int32_t member() const { return static_cast<int32_t>(threadIdx.x) & (members() - 1); }
  __device__ int32_t first_warp() const { return team() * warps(); }

 private:
  static constexpr int kMostShift = 10;
  static constexpr int kLeastShift = 5;
  static_assert(kDispatchThreads == 1 << kMostShift && kWarp == 1 << kLeastShift);

  int shift_;  // log2 of a team's threads
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RANK_TEAM_CUH_
