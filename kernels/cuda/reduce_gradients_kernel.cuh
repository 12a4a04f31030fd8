// Kernels of reduce_gradients_launch.h.
#ifndef PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_REDUCE_GRADIENTS_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/gradients_view.h"
#include "kernels/cuda/group_rows.cuh"

namespace perigee {

// With few SMs it is loads under way that make the rate: 64 KiB a block, of each slot's matrix.
inline constexpr int kReduceThreads = 1024;
inline constexpr int kReduceVectors = 4;  // of a thread, under way at once
inline constexpr int kFloatsPerVector = 4;

// The slots that hold an expert's gradients, as indices rank * B + slot in ascending order. The
// planner gives an expert one slot of a rank at most.
struct SlotList {
  int32_t count;
  int32_t indices[kControlPeers];
};

// All threads of the block; `list` is shared by them. A barrier before it is used and after.
__device__ inline void ListSlots(const PathView& path, const PlanView& plan, int32_t expert,
                                 SlotList* list) {
  constexpr int kWarps = kReduceThreads / 32;
  __shared__ uint32_t matches[kWarps];
  const int32_t warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t all = path.geometry.ranks * path.geometry.slots;
  int32_t count = 0;
  for (int32_t first = 0; first < all; first += kReduceThreads) {
    const int32_t index = first + static_cast<int32_t>(threadIdx.x);
    const bool match = index < all && plan.experts_to_copy[index] == expert;
    const uint32_t ballot = __ballot_sync(0xffffffffu, match);
    if (lane == 0) matches[warp] = ballot;
    __syncthreads();
    int32_t before = count + __popc(ballot & ((1u << lane) - 1));
    for (int32_t other = 0; other < kWarps; ++other) {
      if (other < warp) before += __popc(matches[other]);
      count += __popc(matches[other]);
    }
    if (match && before < kControlPeers) list->indices[before] = index;
    __syncthreads();
  }
  if (threadIdx.x == 0) list->count = min(count, static_cast<int32_t>(kControlPeers));
  __syncthreads();
}

__device__ inline void AddTo(float4& sum, const float4& more) {
  sum.x += more.x;
  sum.y += more.y;
  sum.z += more.z;
  sum.w += more.w;
}

// One matrix of one expert, by all blocks: each reads a span of it from its home and from every
// slot, in order, and writes the sums once.
__device__ inline void SumMatrix(const GradientsView& gradients, const GradientKind& kind,
                                 int32_t home_index, const SlotList& list, int32_t slots_per_rank) {
  const int64_t vectors = gradients.matrix_elements / kFloatsPerVector;
  float4* sums = reinterpret_cast<float4*>(kind.home) + home_index * vectors;
  constexpr int64_t kSpan = int64_t{kReduceThreads} * kReduceVectors;
  for (int64_t first = blockIdx.x * kSpan; first < vectors; first += gridDim.x * kSpan) {
    const int64_t at = first + threadIdx.x;
    float4 sum[kReduceVectors];
#pragma unroll
    for (int i = 0; i < kReduceVectors; ++i) {
      if (at + i * kReduceThreads < vectors) sum[i] = sums[at + i * kReduceThreads];
    }
    for (int32_t source = 0; source < list.count; ++source) {
      const int32_t index = list.indices[source];
      const std::byte* block = gradients.slots[index / slots_per_rank] + kind.offset;
      const float4* from =
          reinterpret_cast<const float4*>(block) + (index % slots_per_rank) * vectors;
      float4 more[kReduceVectors];
#pragma unroll
      for (int i = 0; i < kReduceVectors; ++i) {
        if (at + i * kReduceThreads < vectors) more[i] = from[at + i * kReduceThreads];
      }
#pragma unroll
      for (int i = 0; i < kReduceVectors; ++i) {
        if (at + i * kReduceThreads < vectors) AddTo(sum[i], more[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kReduceVectors; ++i) {
      if (at + i * kReduceThreads < vectors) sums[at + i * kReduceThreads] = sum[i];
    }
  }
}

// `gradients` is indexed where it lies: a copy would be local memory.
__global__ void __launch_bounds__(kReduceThreads)
    ReduceGradientsKernel(PathView path, PlanView plan,
                          const __grid_constant__ GradientsView gradients) {
  if (Stopped(path)) return;
  __shared__ SlotList list;
  const int32_t experts = path.geometry.experts_per_rank();
  for (int32_t index = 0; index < experts; ++index) {
    ListSlots(path, plan, path.rank * experts + index, &list);
    if (list.count > 0) {
      for (const GradientKind& kind : gradients.kinds) {
        SumMatrix(gradients, kind, index, list, path.geometry.slots);
      }
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kReduceThreads)
    ClearGradientsKernel(PathView path, PlanView plan, GradientsView gradients) {
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
