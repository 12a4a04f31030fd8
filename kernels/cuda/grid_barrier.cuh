// A barrier of all blocks of one kernel. Every block must be able to run at once: kernels that use
// it have at most the buffer's reserved SMs as blocks.
#ifndef PERIGEE_KERNELS_CUDA_GRID_BARRIER_CUH_
#define PERIGEE_KERNELS_CUDA_GRID_BARRIER_CUH_

#include <cstdint>

#include "kernels/cuda/path_view.h"

namespace perigee {

// Of one launch: every block makes one, calls Sync as often as all others, and Leave once. Not
// bounded by a deadline: blocks wait here for those of their own kernel alone, each of which is
// bounded.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(GridWords* words) : words_(words) {}

  // All threads of the block. What any thread of the grid has done before is seen after it.
  __device__ void Sync() {
    ++rounds_;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&words_->arrived, 1u);
      const uint32_t wanted = rounds_ * gridDim.x;
      while (Load(&words_->arrived) < wanted) {
      }
    }
    __syncthreads();
  }

  // All threads, after the last Sync. The last block to leave makes the words ready for the
  // launches behind it.
  __device__ void Leave() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(&words_->left, 1u) != gridDim.x - 1) return;
    for (uint32_t& verdict : words_->verdicts) verdict = 0;
    for (uint32_t& next : words_->next) next = 0;
    words_->arrived = 0;
    words_->left = 0;
    __threadfence();
  }

 private:
  static __device__ uint32_t Load(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }

  GridWords* words_;
  uint32_t rounds_ = 0;
};

// What one block has found out, for all blocks: written before a Sync, read after it and not
// written again in the launch. (PathState::stop is no substitute: a block that runs ahead may
// change it while a slower one still looks.)
__device__ inline void SetVerdict(GridWords* words, int index) {
  *static_cast<volatile uint32_t*>(&words->verdicts[index]) = 1;
}
__device__ inline bool Verdict(const GridWords* words, int index) {
  return *static_cast<const volatile uint32_t*>(&words->verdicts[index]) != 0;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_GRID_BARRIER_CUH_
