// Kernels of combine_launch.h. Their sums have the bits of kernels/algo's (vector_sum.cuh), so
// those of the host backend.
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

// What becomes of one group of duplicates. Those of this rank's own tokens are summed with the
// token, without a trip through memory.
__device__ inline RowSum SumOfGroup(const PathView& path, const PlanView& plan, int32_t used,
                                    int64_t i) {
  BFloat16* rows = path.shards[path.rank].rows;
  const DeviceDuplicateGroup group = plan.duplicate_groups[i];
  if (group.expanded()) return {};
  int32_t row = group.primary_row;
  if (LaneId() > 0 && LaneId() <= group.count()) {
    row = plan.duplicate_rows[group.start + LaneId() - 1];
  }
  // A list that was found malformed has broken the path, but after other blocks looked at it.
  if (row < 0 || row >= used) row = group.primary_row;
  RowSum sum;
  sum.row = RowAt(rows, row, path.hidden);
  sum.count = group.count() + 1;
  sum.out = RowAt(rows, group.primary_row, path.hidden);
  return sum;
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

// The row of lane k's route of a token, where this rank reads it: every primary, and the duplicates
// on this rank itself. `own` is set where it lies here.
__device__ inline const void* RowOfRoute(const PathView& path, const GatherArguments& arguments,
                                         int64_t token, bool* is_primary, bool* own) {
  *is_primary = *own = false;
  if (LaneId() >= path.geometry.topk) return nullptr;
  const int32_t dst = arguments.plan.dst[token * path.geometry.topk + LaneId()];
  if (IsMasked(dst)) return nullptr;
  const int32_t raw = DecodeRow(dst);
  const int32_t rank = RankOf(raw, path.logical_rows);
  *is_primary = IsPrimary(dst);
  *own = rank == path.rank;
  if (!*is_primary && !*own) return nullptr;
  return RowAt(path.shards[rank].rows, LocalRow(raw, path.logical_rows), path.hidden);
}

// What becomes of one token: primaries in order of k, its rows on this rank summed first.
__device__ inline RowSum SumOfToken(const PathView& path, const GatherArguments& arguments,
                                    int64_t token) {
  const int32_t lane = LaneId();
  bool is_primary = false;
  bool own = false;
  const void* row = RowOfRoute(path, arguments, token, &is_primary, &own);
  if (arguments.route_weights != nullptr && lane < path.geometry.topk) {
    GatherWeight(path, arguments, token * path.geometry.topk + lane);
  }
  const uint32_t primaries = __ballot_sync(0xffffffffu, is_primary);
  const uint32_t duplicates = __ballot_sync(0xffffffffu, own && !is_primary);
  const uint32_t own_primary = __ballot_sync(0xffffffffu, own && is_primary);
  // Primaries before this lane's or, of a duplicate, up to its own.
  const uint32_t lower = (1u << lane) - 1;
  const uint32_t before = is_primary ? lower : own_primary | (own_primary - 1);
  int32_t place = __popc(primaries & before);
  if (is_primary && (own_primary & lower) != 0) place += __popc(duplicates);
  if (!is_primary) place += __popc(duplicates & lower);
  // Moves the rows to the first lanes, in this order.
  int from = 0;
  for (uint32_t left = primaries | duplicates; left != 0; left &= left - 1) {
    const int source = __ffs(left) - 1;
    if (__shfl_sync(0xffffffffu, place, source) == lane) from = source;
  }
  const auto packed = __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row), from);
  RowSum sum;
  sum.row = reinterpret_cast<const void*>(packed);
  sum.count = __popc(primaries | duplicates);
  if (duplicates != 0) {
    sum.inner_begin = __popc(primaries & (own_primary - 1));
    sum.inner_end = sum.inner_begin + 1 + __popc(duplicates);
  }
  sum.out = RowAt(arguments.hidden, token, path.hidden);
  return sum;
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
  GridBarrier grid(path, mark);
  // Orders: every rank's staging and local sums in its shard before the reads of it below.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kCombineNotEntered);
  }
  if (!grid.Sync() || Verdict(path.grid, kCombineNotEntered)) return grid.Leave();
  RowSummer summer(reinterpret_cast<std::byte*>(shared), path.row_bytes());
  const RowTickets tickets(&path.grid->next[kTokenSumQueue], path.geometry.tokens,
                           path.row_bytes());
  summer.Sum(tickets, [&](int64_t token) { return SumOfToken(path, arguments, token); });
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  // Orders: the reads above before whatever any rank writes to its shard next.
  if (grid.Sync() && blockIdx.x == 0) Exit(path, mark, site);
  grid.Leave();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
