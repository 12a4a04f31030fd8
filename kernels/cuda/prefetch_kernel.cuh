// Kernels of prefetch_launch.h.
#ifndef PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/grid_barrier.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/prefetch_launch.h"
#include "kernels/cuda/rank_barrier.cuh"
#include "kernels/cuda/slot_filler.cuh"
#include "kernels/cuda/weights_words.cuh"

namespace perigee {

inline constexpr int kSlotThreads = 256;
inline constexpr int kCopyThreads = SlotStages::kThreads;

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

// What a word of bad_slots is where a block has found the slot's home without the weights in this
// operation.
__device__ inline uint32_t BadMark(const OperationMark& mark) { return mark.place + 1; }

// Every block, ahead of its copies; the first also takes the tags off.
__device__ inline void OpenSlots(const PathView& path, const OperationMark& mark,
                                 const WeightsView& weights, const SlotList& list,
                                 uint32_t* bad_slots) {
  for (auto i = static_cast<int32_t>(threadIdx.x); i < list.count; i += kCopyThreads) {
    if (blockIdx.x == 0) *SlotTagAt(weights, list.slot[i]) = SlotTag();
    if (!HomeIsReady(weights, path.geometry.home_rank(list.expert[i]))) {
      bad_slots[list.slot[i]] = BadMark(mark);
    }
  }
  __syncthreads();
}

// One block, after all copies: slots whose homes had the weights all along get their new tags.
__device__ inline void CloseSlots(const PathView& path, const OperationMark& mark,
                                  const PlanView& plan, const WeightsView& weights,
                                  const uint32_t* bad_slots) {
  const auto threads = static_cast<int32_t>(blockDim.x);
  for (int32_t first = 0; first < path.geometry.slots; first += threads) {
    const int32_t slot = first + static_cast<int32_t>(threadIdx.x);
    const int32_t expert =
        slot < path.geometry.slots ? ExpertInSlot(plan, path.geometry, path.rank, slot) : -1;
    int32_t stale = INT32_MAX;
    HomeHeader held;
    if (expert >= 0) {
      held = ReadHome(weights, path.geometry.home_rank(expert));
      if (HomeHolds(weights, held) && __ldcg(&bad_slots[slot]) != BadMark(mark)) {
        *SlotTagAt(weights, slot) = WantedTag(weights, expert);
      } else {
        stale = slot;
      }
    }
    NoteStaleSlot(path, stale, held);
  }
}

// Of LaunchFillSlots, which runs beside operations that may stop the path at any moment: whether it
// fills slots is decided once, ahead of its copies, and kept behind the words of the slots.
__device__ inline uint32_t* FillWord(const PathView& path, uint32_t* bad_slots) {
  return bad_slots + path.geometry.slots;
}
__device__ inline bool Fills(const PathView& path, const OperationMark& mark, uint32_t* bad_slots) {
  return __ldcg(FillWord(path, bad_slots)) == BadMark(mark);
}

// One block. Where a later dispatch has told of itself since, a failure of this one has stopped the
// path.
__global__ void __launch_bounds__(kSlotThreads)
    BeginFillKernel(PathView path, OperationMark mark, FillPace pace, PlanView plan,
                    const __grid_constant__ WeightsView weights, uint32_t* bad_slots) {
  __shared__ bool fills;
  if (threadIdx.x == 0) {
    const bool has_plan =
        pace.made_by == 0 || LoadAcquire(&path.grid->planned) != PlannedWord(pace.made_by, false);
    fills = has_plan && !Stopped(path);
  }
  __syncthreads();
  if (!fills) return;
  for (auto slot = static_cast<int32_t>(threadIdx.x); slot < path.geometry.slots;
       slot += kSlotThreads) {
    const int32_t expert = ExpertInSlot(plan, path.geometry, path.rank, slot);
    if (expert >= 0) *SlotTagAt(weights, slot) = SlotTag();
  }
  if (threadIdx.x == 0) *FillWord(path, bad_slots) = BadMark(mark);
}

__global__ void __launch_bounds__(kSlotThreads)
    CloseSlotsKernel(PathView path, OperationMark mark, PlanView plan,
                     const __grid_constant__ WeightsView weights, uint32_t* bad_slots) {
  if (Fills(path, mark, bad_slots)) CloseSlots(path, mark, plan, weights, bad_slots);
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
__device__ inline void CopySlots(const PathView& path, const OperationMark& mark,
                                 const PlanView& plan, const WeightsView& weights,
                                 uint32_t* bad_slots) {
  extern __shared__ __align__(kSharedAlignment) std::byte stages[];
  __shared__ SlotList list;
  if (blockIdx.x == 0 && threadIdx.x == 0) path.state->stale_slot = INT32_MAX;
  SlotFiller filler(stages, path, weights);
  for (int32_t first = 0; first < path.geometry.slots; first += SlotList::kMost) {
    ListSlots(path, plan, first, list);
    OpenSlots(path, mark, weights, list, bad_slots);
    filler.Fill(list);
    for (int32_t i = 0; i < list.count; ++i) {
      for (int part = 0; part < kWeightParts; ++part) {
        const int64_t bytes = weights.shape.part_bytes(part);
        if (bytes % static_cast<int64_t>(sizeof(uint4)) == 0) continue;
        CopyBytes(SlotPart(weights, list.slot[i], part),
                  HomePart(weights, path.geometry, list.expert[i], part), bytes);
      }
    }
  }
}

// Returns when the dispatch has nothing under way any more, or has ended, which it does in any
// case.
__device__ inline void AwaitSent(const PathView& path, uint64_t made_by) {
  if (threadIdx.x == 0) {
    while (LoadAcquire(&path.grid->sent) < made_by) {
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kCopyThreads, 1)
    CopySlotsKernel(PathView path, OperationMark mark, FillPace pace, PlanView plan,
                    const __grid_constant__ WeightsView weights, uint32_t* bad_slots) {
  if (!Fills(path, mark, bad_slots)) return;
  if (static_cast<int32_t>(blockIdx.x) >= pace.early_blocks) AwaitSent(path, pace.made_by);
  CopySlots(path, mark, plan, weights, bad_slots);
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
                   const __grid_constant__ WeightsView weights, uint32_t* bad_slots) {
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  GridBarrier grid(path, mark);
  // Orders: the loading of every home block before the reads of it that follow.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kPrefetchNotEntered);
  }
  if (!grid.Sync() || Verdict(path.grid, kPrefetchNotEntered)) return grid.Leave();
  CopySlots(path, mark, plan, weights, bad_slots);
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  if (grid.Sync() && blockIdx.x == 0) {
    CloseSlots(path, mark, plan, weights, bad_slots);
    // Orders: the reads above before any home block is loaded anew. All ranks pass it, whatever one
    // has found.
    if (Exit(path, mark, site) && threadIdx.x == 0) ReportStaleSlot(path, mark, plan);
  }
  LaunchDependents();
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PREFETCH_KERNEL_CUH_
