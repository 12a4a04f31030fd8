// Kernels of a dispatch that stay in this rank's memory and wait for nobody.
#ifndef PERIGEE_KERNELS_CUDA_EXPAND_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_EXPAND_KERNEL_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/list_duplicates.cuh"
#include "kernels/cuda/row_mover.cuh"
#include "kernels/cuda/row_vectors.cuh"

namespace perigee {

// A warp a group of duplicates at a time, a lane a duplicate. own_too: also those that a dispatch
// writes at their source. Called by the warps that `mover` may be of.
__device__ inline void ExpandRows(const PathView& path, const OperationMark& mark,
                                  const PlanView& plan, bool own_too, const MoverShape& shape,
                                  RowMover& mover) {
  BFloat16* rows = path.shards[path.rank].rows;
  const int32_t used = UsedRows(plan, path.geometry);
  const RowTickets tickets(&path.grid->next[kExpandQueue], plan.counts->duplicate_groups,
                           shape.row_bytes);
  mover.Move(tickets, [&](int64_t i) {
    RowMove move;
    const DeviceDuplicateGroup group = plan.duplicate_groups[i];
    const bool written = group.is_own() && !own_too;
    // Of those that are written already, the list is looked at all the same.
    if (!written) move.from = RowAt(rows, group.primary_row, path.hidden);
    if (LaneId() >= group.count()) return move;
    const int32_t row = plan.duplicate_rows[group.start + LaneId()];
    if (row < 0 || row >= used) {
      ReportLink(path, mark, row, group.primary_row, LaneId() + 1);
    } else if (!written) {
      move.to = RowAt(rows, row, path.hidden);
    }
    return move;
  });
}

__global__ void ExpandKernel(PathView path, OperationMark mark, PlanView plan, bool own_too,
                             MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  AwaitKernelAhead();
  if (Stopped(path)) return;
  LaunchDependents();
  RowMover mover(shape, reinterpret_cast<std::byte*>(shared),
                 static_cast<int32_t>(threadIdx.x / 32));
  ExpandRows(path, mark, plan, own_too, shape, mover);
}

__global__ void __launch_bounds__(kRowThreads)
    CopyUsedRowsKernel(PathView path, PlanView plan, CopyArguments copy) {
  if (Stopped(path)) return;
  const int32_t used = UsedRows(plan, path.geometry);
  const int32_t vectors = path.hidden / kVectorElements;
  if (copy.rows_to != nullptr) {
    for (int64_t row = GridWarp(); row < used; row += GridWarps()) {
      CopyVectors(Vectors(copy.rows_to, row, path.hidden),
                  Vectors(copy.rows_from, row, path.hidden), vectors);
    }
  }
  if (copy.weights_to == nullptr) return;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < used; row += step) {
    copy.weights_to[row] = copy.weights_from[row];
  }
}

// A grid's part of an array.
__device__ inline void CopyInts(int32_t* to, const int32_t* from, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

__global__ void __launch_bounds__(kRowThreads)
    CopyPlanKernel(PathView path, OperationMark mark, PlanView plan, PlanArrays to) {
  if (Stopped(path)) return;
  const Geometry& geometry = path.geometry;
  CopyInts(to.dst, plan.dst, geometry.routes());
  CopyInts(to.cu_seqlens, plan.cu_seqlens, geometry.groups());
  CopyInts(to.zero_fill_ranges, plan.zero_fill_ranges, int64_t{2} * geometry.groups());
  CopyInts(to.experts_to_copy, plan.experts_to_copy, int64_t{geometry.ranks} * geometry.slots);
  CopyInts(to.load, plan.load, geometry.ranks);
  CopyInts(to.home_load, plan.home_load, geometry.ranks);
  if (blockIdx.x == 0 && threadIdx.x == 0) *to.sequence = mark.sequence;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_EXPAND_KERNEL_CUH_
