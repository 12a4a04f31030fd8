// The kernels of direct publication: a dispatch (dispatch_kernel.cuh) taken apart, so that a
// producer's kernels may come between.
#ifndef PERIGEE_KERNELS_CUDA_PUBLISH_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PUBLISH_KERNEL_CUH_

#include <cstddef>

#include "kernels/cuda/dispatch_kernel.cuh"

namespace perigee {

__global__ void __launch_bounds__(kDispatchThreads, 1)
    PlanKernel(PathView path, OperationMark mark, EntryArguments entry,
               PlanningArguments planning) {
  extern __shared__ __align__(kSharedAlignment) uint4 words[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  // Alike for all blocks: none changes it before all have begun.
  if (Stopped(path)) return DeclineInTurn(path, mark, entry);
  GridBarrier grid(path, mark);
  const PlanningMemory memory =
      PlacePlanningMemory(path, planning.scratch, reinterpret_cast<int32_t*>(words));
  MakePlan(path, mark, entry, planning, memory, site, grid);
  grid.Leave();
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    SendRoutesKernel(PathView path, SendArguments send) {
  AwaitKernelAhead();
  if (Stopped(path)) return;
  SendRoutes(path, send, /*links=*/true, /*first_warp=*/0);
  ZeroPadding(path, send.plan, /*first_warp=*/0);
}

__global__ void StoreRowsKernel(PathView path, OperationMark mark, SendArguments send,
                                MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  AwaitKernelAhead();
  if (Stopped(path)) return;
  const int32_t topk = path.geometry.topk;
  RowMover mover(shape, reinterpret_cast<std::byte*>(shared), WarpOfBlock());
  const RowTickets tickets(&path.grid->next[kSendQueue], send.token_count, shape.row_bytes);
  mover.Move(tickets, [&](int64_t token) {
    RowMove move;
    move.from = RowAt(send.hidden, token, path.hidden);
    if (LaneId() >= topk) return move;
    const int32_t dst = send.plan.dst[token * topk + LaneId()];
    if (!IsPrimary(dst)) return move;
    const int32_t rank = RankOf(dst, path.logical_rows);
    move.to = RowAt(path.shards[rank].rows, LocalRow(dst, path.logical_rows), path.hidden);
    return move;
  });
  // Nobody waits here: it makes the tickets ready for the launches behind this one.
  GridBarrier(path, mark).Leave();
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    PublishKernel(PathView path, OperationMark mark, EntryArguments entry, PlanView plan,
                  bool expands_here, MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  if (Stopped(path)) return DeclineInTurn(path, mark, entry);
  GridBarrier grid(path, mark);
  // Orders: what every rank's producer and preparation stored into this shard before the reads
  // below and of kernels behind this one.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kNotEntered);
  }
  const bool entered = grid.Sync() && !Verdict(path.grid, kNotEntered);
  LaunchDependents();
  if (entered) ListDuplicates(path, mark, plan, UsedRows(plan, path.geometry));
  // Not by lists that were found malformed.
  if (entered && expands_here && grid.Sync() && !Stopped(path) && WarpOfBlock() < shape.warps) {
    RowMover mover(shape, reinterpret_cast<std::byte*>(shared), WarpOfBlock());
    ExpandRows(path, mark, plan, /*own_too=*/true, shape, mover);
  }
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PUBLISH_KERNEL_CUH_
