// The kernel of a dispatch. Its blocks wait for each other at grid barriers; the first of them
// waits for other ranks.
#ifndef PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/assign_routes.cuh"
#include "kernels/cuda/count_routes.cuh"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/expand_kernel.cuh"
#include "kernels/cuda/grid_barrier.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/list_duplicates.cuh"
#include "kernels/cuda/placement.cuh"
#include "kernels/cuda/rank_barrier.cuh"
#include "kernels/cuda/row_mover.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/send_routes.cuh"

namespace perigee {

// GridWords::verdicts of a dispatch.
enum : int { kNotEntered = 0, kBadCounts = 1, kNotLeft = 2 };

// What other phases add to is made ready, before a grid barrier.
__device__ inline void ClearPlan(const PathView& path, const PlanView& plan) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  *plan.counts = PlanCounts();
  path.grid->next_own = 0;
}

// The tables by which routes are placed. False where they cannot be made: in every block that
// tried, and no block may go on then.
__device__ inline bool MakeTables(const PathView& path, const OperationMark& mark,
                                  const PlanningArguments& planning, const PlanningMemory& memory,
                                  GridBarrier& grid) {
  const bool shared = memory.shape.tables_are_shared;
  bool made = true;
  if (shared || blockIdx.x == 0) {
    made = PlaceGroups(path, mark, memory.tables, planning.plan,
                       shared ? static_cast<int32_t>(gridDim.x) : 1);
    if (!made && threadIdx.x == 0) SetVerdict(path.grid, kBadCounts);
  }
  if (!shared) made = grid.Sync() && !Verdict(path.grid, kBadCounts);
  if (!made) return false;
  for (int32_t i = threadIdx.x; i < path.geometry.experts; i += kDispatchThreads) {
    memory.earlier[i] += memory.tables.lower[i];
  }
  __syncthreads();
  return true;
}

// All of the plan but its duplicate lists. False where the operation ends here, for all blocks
// alike.
__device__ inline bool MakePlan(const PathView& path, const OperationMark& mark,
                                const EntryArguments& entry, const PlanningArguments& planning,
                                const PlanningMemory& memory, const BarrierSite& site,
                                GridBarrier& grid, bool clears_links = true) {
  ClearPlan(path, planning.plan);
  if (clears_links) ClearLinks(path);
  CountRoutes(path, planning, memory);
  if (!grid.Sync()) return false;
  SumCountsOfBlocks(path, mark, planning, memory);
  if (blockIdx.x == 0) {
    __syncthreads();
    // Orders: peers' reads of this shard in the last combine, and their histograms, before what
    // follows.
    if (!Enter(path, mark, entry, site) && threadIdx.x == 0) SetVerdict(path.grid, kNotEntered);
    if (threadIdx.x == 0) path.state->bad_route = UINT32_MAX;  // as the next dispatch expects it
  }
  if (!grid.Sync() || Verdict(path.grid, kNotEntered)) return false;
  if (MakeTables(path, mark, planning, memory, grid)) AssignRoutes(path, planning, memory);
  return grid.Sync() && !Verdict(path.grid, kBadCounts);
}

// Zeros in this rank's own padding rows and their weights: by the warps of the blocks from
// `first_warp` on, a group each.
__device__ inline void ZeroPadding(const PathView& path, const PlanView& plan, int32_t first_warp) {
  const ShardView& own = path.shards[path.rank];
  const auto blocks = static_cast<int32_t>(gridDim.x);
  const int32_t warps = kDispatchThreads / kWarp - first_warp;
  const int32_t vectors = path.hidden / kVectorElements;
  int32_t group = static_cast<int32_t>(blockIdx.x) + blocks * (WarpOfBlock() - first_warp);
  for (; group < path.geometry.groups(); group += blocks * warps) {
    const int64_t begin = plan.zero_fill_ranges[2 * group];
    const int32_t rows = plan.zero_fill_ranges[2 * group + 1];
    uint4* to = Vectors(own.rows, begin, path.hidden);
    const int64_t count = int64_t{rows} * vectors;
#pragma unroll 4
    for (int64_t i = LaneId(); i < count; i += kWarp) to[i] = make_uint4(0, 0, 0, 0);
    for (int32_t i = LaneId(); i < rows; i += kWarp) own.row_weights[begin + i] = 0.0f;
  }
}

// Tokens' rows to their places on other ranks (primaries alone) and on this one (duplicates too).
__device__ inline void SendRows(const PathView& path, const SendArguments& send, bool to_others,
                                bool to_own, const MoverShape& shape, std::byte* shared,
                                uint32_t* queue) {
  const int32_t topk = path.geometry.topk;
  RowMover mover(shape, shared, WarpOfBlock());
  const RowTickets tickets(queue, send.token_count, shape.row_bytes);
  mover.Move(tickets, [&](int64_t token) {
    RowMove move;
    move.from = RowAt(send.hidden, token, path.hidden);
    if (LaneId() >= topk) return move;
    const int32_t dst = __ldcg(&send.plan.dst[token * topk + LaneId()]);
    if (IsMasked(dst)) return move;
    const int32_t raw = DecodeRow(dst);
    const int32_t rank = RankOf(raw, path.logical_rows);
    const bool wanted = rank == path.rank ? to_own : to_others && IsPrimary(dst);
    if (wanted) {
      move.to = RowAt(path.shards[rank].rows, LocalRow(raw, path.logical_rows), path.hidden);
    }
    return move;
  });
}

// Between the barriers: all that this rank stores, by a plan that all blocks see.
__device__ inline void Send(const PathView& path, const SendArguments& send, bool links,
                            const MoverShape& shape, std::byte* shared) {
  const bool keeps = !send.keeps_beside;
  if (WarpOfBlock() < shape.warps) {
    SendRows(path, send, true, keeps, shape, shared, &path.grid->next[kSendQueue]);
  } else {
    SendRoutes(path, send, links, shape.warps);
    if (keeps) ZeroPadding(path, send.plan, shape.warps);
  }
}

// Tells the kernel beside this one that the plan is there, or that the operation has ended. One
// block, when all blocks have got so far.
__device__ inline void TellPlanned(const PathView& path, const OperationMark& mark, bool goes_on) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  StoreRelease(&path.grid->planned, PlannedWord(mark.sequence, goes_on));
}

// Beside a dispatch, waiting for nothing but its plan.
__global__ void __launch_bounds__(kDispatchThreads, 1)
    KeepKernel(PathView path, OperationMark mark, SendArguments send, MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  __shared__ bool goes_on;
  if (threadIdx.x == 0) {
    // Begins when it is told, or when the dispatch has ended: this does not spin for long.
    uint64_t planned = 0;
    while ((planned = LoadAcquire(&path.grid->planned)) >> 1 != mark.sequence) {
    }
    goes_on = (planned & 1) != 0;
  }
  __syncthreads();
  if (goes_on) {
    if (WarpOfBlock() < shape.warps) {
      SendRows(path, send, false, true, shape, reinterpret_cast<std::byte*>(shared),
               &path.grid->next_own);
    } else {
      ZeroPadding(path, send.plan, shape.warps);
    }
  }
  // What is launched behind this kernel waits for it, and must wait for the dispatch too.
  if (blockIdx.x == 0) AwaitKernelAhead();
}

// When this rank has sent what it has: all ranks have. For all blocks alike.
__device__ inline bool Leave(const PathView& path, const OperationMark& mark, GridBarrier& grid) {
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  if (!grid.Sync()) return false;
  if (blockIdx.x == 0 && !Exit(path, mark, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kNotLeft);
  }
  return grid.Sync() && !Verdict(path.grid, kNotLeft);
}

// Where this kernel does what ExpandKernel does: the shared memory has been a mover's before.
__device__ inline void ExpandHere(const PathView& path, const OperationMark& mark,
                                  const PlanView& plan, const MoverShape& shape,
                                  std::byte* shared) {
  if (WarpOfBlock() >= shape.warps) return;
  RowMover mover(shape, shared, WarpOfBlock(), /*again=*/true);
  ExpandRows(path, mark, plan, /*own_too=*/false, shape, mover);
}

// A rank that refused an earlier operation of the queue has told the others, and declines.
__device__ inline void DeclineInTurn(const PathView& path, const OperationMark& mark,
                                     const EntryArguments& entry) {
  TellPlanned(path, mark, false);
  if (blockIdx.x == 0) Enter(path, mark, entry, LoadBarrierSite(path));
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    DispatchKernel(PathView path, OperationMark mark, EntryArguments entry,
                   PlanningArguments planning, SendArguments send, MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 words[];
  auto* const shared = reinterpret_cast<std::byte*>(words);
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  // Alike for all blocks: none changes it before all have begun.
  if (Stopped(path)) return DeclineInTurn(path, mark, entry);
  GridBarrier grid(path, mark);
  const PlanningMemory memory =
      PlacePlanningMemory(path, planning.scratch, reinterpret_cast<int32_t*>(shared));
  bool goes_on = MakePlan(path, mark, entry, planning, memory, site, grid);
  TellPlanned(path, mark, goes_on);
  if (!goes_on) return grid.Leave();
  if (send.keeps_beside) LaunchDependents();
  Send(path, send, true, shape, shared);
  const int32_t used = UsedRows(send.plan, path.geometry);
  goes_on = Leave(path, mark, grid);
  if (blockIdx.x == 0 && threadIdx.x == 0) StoreRelease(&path.grid->sent, mark.sequence);
  LaunchDependents();
  if (goes_on) ListDuplicates(path, mark, planning.plan, used);
  // Not by lists that were found malformed.
  if (goes_on && send.expands_here && grid.Sync() && !Stopped(path)) {
    ExpandHere(path, mark, send.plan, shape, shared);
  }
  grid.Leave();
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    DispatchWithPlanKernel(PathView path, OperationMark mark, EntryArguments entry,
                           SendArguments send, MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 words[];
  auto* const shared = reinterpret_cast<std::byte*>(words);
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  GridBarrier grid(path, mark);
  if (blockIdx.x == 0 && threadIdx.x == 0) path.grid->next_own = 0;
  // All blocks run before this rank says that it is there: a KeepKernel of a rank on the same
  // device may hold SMs from then on until this kernel has left.
  const bool all_run = grid.Sync();
  // Orders: peers' reads of this shard in the last combine before the stores below.
  if (blockIdx.x == 0 && !(all_run && Enter(path, mark, entry, site)) && threadIdx.x == 0) {
    SetVerdict(path.grid, kNotEntered);
  }
  const bool entered = all_run && grid.Sync() && !Verdict(path.grid, kNotEntered);
  TellPlanned(path, mark, entered);
  if (!entered) return grid.Leave();
  if (send.keeps_beside) LaunchDependents();
  Send(path, send, false, shape, shared);
  const bool left = Leave(path, mark, grid);
  LaunchDependents();
  if (left && send.expands_here) ExpandHere(path, mark, send.plan, shape, shared);
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DISPATCH_KERNEL_CUH_
