// Kernels of reduce_gradients_launch.h.
#ifndef PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/gradient_summer.cuh"
#include "kernels/cuda/grid_barrier.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/rank_barrier.cuh"

namespace perigee {

inline constexpr int kClearThreads = 1024;
inline constexpr int kFloatsPerVector = 4;

// Own experts that sit in some slot, of up to kExperts from `first`: bits in shared memory. All
// threads of the block; a barrier before the set is used and after.
struct ExpertSet {
  static constexpr int kExperts = 1024;
  uint32_t words[kExperts / 32];
};
__device__ inline void FindExpertsInSlots(const PathView& path, const PlanView& plan, int32_t first,
                                          ExpertSet* set) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < ExpertSet::kExperts / 32) set->words[thread] = 0;
  __syncthreads();
  const int32_t begin = path.rank * path.geometry.experts_per_rank() + first;
  const int32_t left = path.geometry.experts_per_rank() - first;
  const int32_t end = begin + min(left, ExpertSet::kExperts);
  const int32_t all = path.geometry.ranks * path.geometry.slots;
  for (int32_t index = thread; index < all; index += static_cast<int32_t>(blockDim.x)) {
    const int32_t expert = plan.experts_to_copy[index];
    if (expert < begin || expert >= end) continue;
    atomicOr(&set->words[(expert - begin) / 32], 1u << ((expert - begin) % 32));
  }
  __syncthreads();
}

// The slots that hold an own expert, in ascending (rank, slot). The planner gives an expert one
// slot of a rank at most. All threads of the block; a barrier before the sources are used and
// after.
__device__ inline void FindSources(const PathView& path, const PlanView& plan,
                                   const GradientsView& gradients, int32_t home_index,
                                   GradientSources* sources) {
  __shared__ int32_t slot_of_rank[kControlPeers];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < kControlPeers) slot_of_rank[thread] = -1;
  __syncthreads();
  const int32_t expert = path.rank * path.geometry.experts_per_rank() + home_index;
  const int32_t slots = path.geometry.slots;
  const int32_t all = path.geometry.ranks * slots;
  for (int32_t index = thread; index < all; index += static_cast<int32_t>(blockDim.x)) {
    if (plan.experts_to_copy[index] == expert) slot_of_rank[index / slots] = index % slots;
  }
  __syncthreads();
  if (thread < 32) {
    int32_t count = 0;
    for (int32_t first = 0; first < kControlPeers; first += 32) {
      const int32_t slot = slot_of_rank[first + thread];
      const uint32_t held = __ballot_sync(0xffffffffu, slot >= 0);
      const int32_t before = count + __popc(held & ((1u << thread) - 1));
      if (slot >= 0) {
        sources->slots[before] =
            gradients.slots[first + thread] +
            slot * gradients.matrix_elements * static_cast<int64_t>(sizeof(float));
      }
      count += __popc(held);
    }
    if (thread == 0) {
      sources->home_index = home_index;
      sources->slot_count = count;
    }
  }
  __syncthreads();
}

// All blocks of the grid. Each warp reads its pieces of an own expert's matrices from their home
// and from every slot, in order, and writes the sums once.
__device__ inline void SumExperts(const PathView& path, const PlanView& plan,
                                  const GradientsView& gradients, std::byte* shared) {
  __shared__ ExpertSet set;
  __shared__ GradientSources sources;
  GradientSummer summer(shared, gradients);
  const int32_t experts = path.geometry.experts_per_rank();
  for (int32_t first = 0; first < experts; first += ExpertSet::kExperts) {
    FindExpertsInSlots(path, plan, first, &set);
    for (int32_t word = 0; word < ExpertSet::kExperts / 32; ++word) {
      for (uint32_t bits = set.words[word]; bits != 0; bits &= bits - 1) {
        FindSources(path, plan, gradients, first + 32 * word + __ffs(static_cast<int>(bits)) - 1,
                    &sources);
        summer.Sum(sources);
      }
    }
    __syncthreads();
  }
}

// GridWords::verdicts of a reduction.
enum : int { kReductionNotEntered = 0 };

// `gradients` is indexed where it lies: a copy would be local memory.
__global__ void __launch_bounds__(GradientStages::kThreads, 1)
    ReduceGradientsKernel(PathView path, OperationMark mark, EntryArguments entry, PlanView plan,
                          const __grid_constant__ GradientsView gradients) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  GridBarrier grid(path, mark);
  // Orders: what every rank has summed up in its slots, before the reads of it below.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kReductionNotEntered);
  }
  if (!grid.Sync() || Verdict(path.grid, kReductionNotEntered)) return grid.Leave();
  SumExperts(path, plan, gradients, reinterpret_cast<std::byte*>(shared));
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  // Orders: the reads above before any slot is cleared or written anew.
  if (grid.Sync() && blockIdx.x == 0) Exit(path, mark, site);
  LaunchDependents();
  grid.Leave();
}

// This rank's slots that the plan uses.
__global__ void __launch_bounds__(kClearThreads)
    ClearGradientsKernel(PathView path, PlanView plan, GradientsView gradients) {
  AwaitKernelAhead();
  if (Stopped(path)) return;
  const int64_t vectors = gradients.matrix_elements / kFloatsPerVector;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int32_t slot = 0; slot < path.geometry.slots; ++slot) {
    if (ExpertInSlot(plan, path.geometry, path.rank, slot) < 0) continue;
    for (const GradientKind& kind : gradients.kinds) {
      float4* to = reinterpret_cast<float4*>(gradients.own_slots + kind.offset) + slot * vectors;
      for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
        to[i] = make_float4(0, 0, 0, 0);
      }
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_KERNEL_CUH_
