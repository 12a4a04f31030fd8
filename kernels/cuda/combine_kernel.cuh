// Kernels of combine_launch.h. Sums are kernels/algo's, so the bits are the host backend's.
#ifndef PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/grid_barrier.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/rank_barrier.cuh"
#include "kernels/cuda/row_summer.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/vector_sum.cuh"
#include "kernels/plan/destination.h"

namespace perigee {

// What becomes of one group of duplicates.
__device__ inline RowSum SumOfGroup(const PathView& path, const PlanView& plan, int32_t used,
                                    int64_t i) {
  BFloat16* rows = path.shards[path.rank].rows;
  const DeviceDuplicateGroup group = plan.duplicate_groups[i];
  int32_t row = group.primary_row;
  if (LaneId() > 0 && LaneId() <= group.count()) {
    row = plan.duplicate_rows[group.start + LaneId() - 1];
  }
  // A list that was found malformed has broken the path, but after other blocks looked at it.
  if (row < 0 || row >= used) row = group.primary_row;
  return {RowAt(rows, row, path.hidden), group.count() + 1,
          RowAt(rows, group.primary_row, path.hidden)};
}

__device__ inline void GatherWeight(const PathView& path, const GatherArguments& arguments,
                                    int64_t route) {
  const int32_t dst = arguments.plan.dst[route];
  float weight = 0.0f;
  if (!IsMasked(dst)) {
    const int32_t raw = DecodeRow(dst);
    const ShardView& shard = path.shards[RankOf(raw, path.logical_rows)];
    weight = shard.row_weights[LocalRow(raw, path.logical_rows)];
  }
  arguments.route_weights[route] = weight;
}

// What becomes of one token.
__device__ inline RowSum SumOfToken(const PathView& path, const GatherArguments& arguments,
                                    int64_t token) {
  const int32_t topk = path.geometry.topk;
  const int32_t lane = LaneId();
  const void* row = nullptr;  // lane k's: of route k if it is a primary
  if (lane < topk) {
    const int32_t dst = arguments.plan.dst[token * topk + lane];
    if (IsPrimary(dst)) {
      row = RowAt(path.shards[RankOf(dst, path.logical_rows)].rows,
                  LocalRow(dst, path.logical_rows), path.hidden);
    }
    if (arguments.route_weights != nullptr) GatherWeight(path, arguments, token * topk + lane);
  }
  // Moves the primaries to the first lanes, in order of k.
  const uint32_t primaries = __ballot_sync(0xffffffffu, row != nullptr);
  int from = 0;
  int place = 0;
  for (uint32_t left = primaries; left != 0; left &= left - 1, ++place) {
    if (place == lane) from = __ffs(left) - 1;
  }
  const auto packed = __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row), from);
  return {reinterpret_cast<const void*>(packed), __popc(primaries),
          RowAt(arguments.hidden, token, path.hidden)};
}

// A group of duplicates at a time.
__global__ void __launch_bounds__(SummerShape::kThreads, 1)
    SumDuplicatesKernel(PathView path, PlanView plan) {
  extern __shared__ uint4 shared[];
  if (Stopped(path)) return;
  const int32_t used = UsedRows(plan, path.geometry);
  RowSummer summer(reinterpret_cast<std::byte*>(shared), path.row_bytes());
  const RowTickets tickets(&path.grid->next[kLocalSumQueue], plan.counts->duplicate_groups,
                           path.row_bytes());
  summer.Sum(tickets, [&](int64_t i) { return SumOfGroup(path, plan, used, i); });
}

// GridWords::verdicts of a combine.
enum : int { kCombineNotEntered = 0 };

// A token at a time, all S of them: those past the plan's token count have no rows.
__global__ void __launch_bounds__(SummerShape::kThreads, 1)
    CombineKernel(PathView path, OperationMark mark, EntryArguments entry,
                  GatherArguments arguments) {
  extern __shared__ uint4 shared[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  GridBarrier grid(path.grid);
  // Orders: every rank's staging and local sums in its shard before the reads of it below.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kCombineNotEntered);
  }
  grid.Sync();
  if (Verdict(path.grid, kCombineNotEntered)) return grid.Leave();
  RowSummer summer(reinterpret_cast<std::byte*>(shared), path.row_bytes());
  const RowTickets tickets(&path.grid->next[kTokenSumQueue], path.geometry.tokens,
                           path.row_bytes());
  summer.Sum(tickets, [&](int64_t token) { return SumOfToken(path, arguments, token); });
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  grid.Sync();
  // Orders: the reads above before whatever any rank writes to its shard next.
  if (blockIdx.x == 0) Exit(path, mark, site);
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
