// Kernels of prefetch_launch.h.
#ifndef PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/grid_barrier.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/prefetch_launch.h"
#include "kernels/cuda/rank_barrier.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/weights_words.cuh"

namespace perigee {

inline constexpr int kSlotThreads = 256;
// 128 KiB a block under way at once: weights come over links, to few SMs.
inline constexpr int kCopyThreads = 512;
inline constexpr int kCopyVectors = 16;

// The least stale slot, with what its home held, by one block of threads that each know of one at
// most: an earlier kernel's finding is kept where it is of a lower slot.
__device__ inline void NoteStaleSlot(const PathView& path, int32_t slot, const HomeHeader& home) {
  __shared__ int32_t least;
  if (threadIdx.x == 0) least = INT32_MAX;
  __syncthreads();
  atomicMin(&least, slot);
  __syncthreads();
  if (slot != INT32_MAX && slot == least && slot < path.state->stale_slot) {
    path.state->stale_slot = slot;
    path.state->stale_home = home;
  }
  __syncthreads();
}

// One block. Before the copy: every used slot loses its tag; those whose home holds the weights are
// good. After it: those that still are get their new tags.
__device__ inline void CheckSlots(const PathView& path, const PlanView& plan,
                                  const WeightsView& weights, uint32_t* slot_is_good,
                                  bool after_copy) {
  if (threadIdx.x == 0 && !after_copy) path.state->stale_slot = INT32_MAX;
  __syncthreads();
  const auto threads = static_cast<int32_t>(blockDim.x);
  for (int32_t first = 0; first < path.geometry.slots; first += threads) {
    const int32_t slot = first + static_cast<int32_t>(threadIdx.x);
    const int32_t expert =
        slot < path.geometry.slots ? ExpertInSlot(plan, path.geometry, path.rank, slot) : -1;
    int32_t stale = INT32_MAX;
    HomeHeader held;
    if (expert >= 0 && (!after_copy || slot_is_good[slot] != 0)) {
      held = ReadHome(weights, path.geometry.home_rank(expert));
      const bool good = HomeHolds(weights, held);
      if (!good) stale = slot;
      if (!after_copy) {
        *SlotTagAt(weights, slot) = SlotTag();
        slot_is_good[slot] = good ? 1 : 0;
      } else if (good) {
        *SlotTagAt(weights, slot) = WantedTag(weights, expert);
      }
    }
    NoteStaleSlot(path, stale, held);
  }
}

__global__ void __launch_bounds__(kSlotThreads)
    CheckSlotsKernel(PathView path, PlanView plan, WeightsView weights, uint32_t* slot_is_good,
                     bool after_copy) {
  if (Stopped(path)) return;
  CheckSlots(path, plan, weights, slot_is_good, after_copy);
}

// One part by all blocks. A thread has several loads under way before its first store.
__device__ inline void CopyWholeVectors(uint4* to, const uint4* from, int64_t vectors) {
  constexpr int64_t kSpan = int64_t{kCopyThreads} * kCopyVectors;
  for (int64_t first = blockIdx.x * kSpan; first < vectors; first += gridDim.x * kSpan) {
    const int64_t at = first + threadIdx.x;
    uint4 loaded[kCopyVectors];
#pragma unroll
    for (int i = 0; i < kCopyVectors; ++i) {
      if (at + i * kCopyThreads < vectors) loaded[i] = from[at + i * kCopyThreads];
    }
#pragma unroll
    for (int i = 0; i < kCopyVectors; ++i) {
      if (at + i * kCopyThreads < vectors) to[at + i * kCopyThreads] = loaded[i];
    }
  }
}

// Scales that are no whole vectors, which are few.
__device__ inline void CopyBytes(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t step = int64_t{kCopyThreads} * gridDim.x;
  for (int64_t at = int64_t{kCopyThreads} * blockIdx.x + threadIdx.x; at < bytes; at += step) {
    to[at] = from[at];
  }
}

// Matrices are whole vectors; so are scales where H and H' are multiples of 128, but for the few
// of a small 8-bit matrix. Every block has a part in every slot that is used, however few these
// are.
__device__ inline void CopySlots(const PathView& path, const PlanView& plan,
                                 const WeightsView& weights, const uint32_t* slot_is_good) {
  for (int32_t slot = 0; slot < path.geometry.slots; ++slot) {
    const int32_t expert = ExpertInSlot(plan, path.geometry, path.rank, slot);
    if (expert < 0 || slot_is_good[slot] == 0) continue;
    for (int part = 0; part < kWeightParts; ++part) {
      const std::byte* from = HomePart(weights, path.geometry, expert, part);
      std::byte* to = SlotPart(weights, slot, part);
      const int64_t bytes = weights.shape.part_bytes(part);
      if (bytes % sizeof(uint4) == 0) {
        CopyWholeVectors(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from),
                         bytes / static_cast<int64_t>(sizeof(uint4)));
      } else {
        CopyBytes(to, from, bytes);
      }
    }
  }
}

__global__ void __launch_bounds__(kCopyThreads)
    CopySlotsKernel(PathView path, PlanView plan, WeightsView weights,
                    const uint32_t* slot_is_good) {
  if (Stopped(path)) return;
  CopySlots(path, plan, weights, slot_is_good);
}

// One thread, behind the exit barrier.
__device__ inline void ReportStaleSlot(const PathView& path, const OperationMark& mark,
                                       const PlanView& plan) {
  if (path.state->stale_slot == INT32_MAX || !ClaimReport(path, PathStop::kDecline)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kExit);
  report.slot = path.state->stale_slot;
  report.rank = path.geometry.home_rank(ExpertInSlot(plan, path.geometry, path.rank, report.slot));
  report.home = path.state->stale_home;
  Publish(report, mark, ReportKind::kStaleHome);
}

__global__ void ReportStaleSlotKernel(PathView path, OperationMark mark, PlanView plan) {
  if (!Stopped(path)) ReportStaleSlot(path, mark, plan);
}

// GridWords::verdicts of a prefetch.
enum : int { kPrefetchNotEntered = 0 };

// All of it in one kernel: between kernels ranks that share a device drift apart.
__global__ void __launch_bounds__(kCopyThreads, 1)
    PrefetchKernel(PathView path, OperationMark mark, EntryArguments entry, PlanView plan,
                   const __grid_constant__ WeightsView weights, uint32_t* slot_is_good) {
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  GridBarrier grid(path, mark);
  if (blockIdx.x == 0) {
    // Orders: the loading of every home block before the reads of it that follow.
    if (Enter(path, mark, entry, site)) {
      CheckSlots(path, plan, weights, slot_is_good, false);
    } else if (threadIdx.x == 0) {
      SetVerdict(path.grid, kPrefetchNotEntered);
    }
  }
  if (!grid.Sync() || Verdict(path.grid, kPrefetchNotEntered)) return grid.Leave();
  CopySlots(path, plan, weights, slot_is_good);
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  if (grid.Sync() && blockIdx.x == 0) {
    CheckSlots(path, plan, weights, slot_is_good, true);
    // Orders: the reads above before any home block is loaded anew. All ranks pass it, whatever one
    // has found.
    if (Exit(path, mark, site) && threadIdx.x == 0) ReportStaleSlot(path, mark, plan);
  }
  LaunchDependents();
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_
