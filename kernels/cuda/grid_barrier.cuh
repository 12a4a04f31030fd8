// A barrier of all blocks of one kernel. Every block must be able to run at once: kernels that use
// it have at most the buffer's reserved SMs as blocks.
#ifndef PERIGEE_KERNELS_CUDA_GRID_BARRIER_CUH_
#define PERIGEE_KERNELS_CUDA_GRID_BARRIER_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"

namespace perigee {

// Of one launch: every block makes one, calls Sync as often as all others, and Leave once. Blocks
// wait here for those of their own kernel alone, each of which is bounded; where one never runs (SM
// budgets that do not hold, on this device), until the host gives up and raises the abort word.
class GridBarrier {
 public:
  __device__ GridBarrier(const PathView& path, const OperationMark& mark)
      : path_(path), mark_(mark), words_(path.grid) {}

  // All threads of the block. What any thread of the grid has done before is seen after it. False:
  // the path has been broken, no other Sync may be waited for.
  __device__ bool Sync() {
    ++rounds_;
    __syncthreads();
    bool aborted = false;
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&words_->arrived, 1u);
      aborted = !Await(rounds_ * gridDim.x);
    }
    return __syncthreads_or(aborted ? 1 : 0) == 0;
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
  // The abort word lies in host memory: not looked at before this has waited for long.
  static constexpr uint64_t kPatienceNs = 2'000'000;
  static constexpr int kLooksAtATime = 1024;

  __device__ bool Await(uint32_t wanted) {
    uint64_t next_poll = 0;
    bool wanted_away = false;
#pragma unroll 1
    while (true) {
#pragma unroll 1
      for (int i = 0; i < kLooksAtATime; ++i) {
        if (Load(&words_->arrived) >= wanted) return true;
      }
      const uint64_t now = DeviceTime();
      if (next_poll == 0) next_poll = now + kPatienceNs;
      if (now < next_poll) continue;
      next_poll = now + kPatienceNs;
      // A block that waits for other ranks sees the word at once and comes here: time for that, it
      // has more to report.
      const bool aborted = LoadRelaxed(&path_.page->abort) != 0;
      if (aborted && wanted_away) break;
      wanted_away = aborted;
    }
    if (BreakPath(path_)) Publish(path_.page->report, mark_, ReportKind::kAborted);
    return false;
  }
  static __device__ uint32_t Load(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }

  const PathView& path_;
  const OperationMark& mark_;
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
