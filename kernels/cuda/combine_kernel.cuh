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

// Duplicates in this rank's shard, a group a sum.
struct GroupSums {
  static constexpr bool kInParts = true;
  using FirstLook = DeviceDuplicateGroup;
  using SecondLook = int32_t;  // this lane's row

  const PathView& path;
  const PlanView& plan;
  bool leaves_own;  // those of this rank's own tokens
  int32_t used;

  __device__ FirstLook First(int32_t i) const { return plan.duplicate_groups[i]; }
  __device__ SecondLook Second(const DeviceDuplicateGroup& group) const {
    if (LaneId() == 0 || LaneId() > group.count()) return group.primary_row;
    return plan.duplicate_rows[group.start + LaneId() - 1];
  }
  __device__ RowSum SumOf(int32_t, const DeviceDuplicateGroup& group, int32_t row) const {
    if (leaves_own && group.is_own()) return {};
    BFloat16* rows = path.shards[path.rank].rows;
    // A list that was found malformed has broken the path, but after other blocks looked at it.
    if (row < 0 || row >= used) row = group.primary_row;
    RowSum sum;
    sum.row = RowAt(rows, row, path.hidden);
    sum.count = group.count() + 1;
    sum.out = RowAt(rows, group.primary_row, path.hidden);
    return sum;
  }
};

// The lanes' rows, of those in `wanted`, to the first lanes. `row` is this lane's.
__device__ inline const void* ToFirstLanes(uint32_t wanted, const void* row) {
  int from = 0;
  int place = 0;
  for (uint32_t left = wanted; left != 0; left &= left - 1, ++place) {
    if (place == LaneId()) from = __ffs(left) - 1;
  }
  return reinterpret_cast<const void*>(
      __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row), from));
}

// This lane's route of a token: its encoded destination.
__device__ inline int32_t RouteOf(const PathView& path, const PlanView& plan, int32_t token) {
  const int32_t topk = path.geometry.topk;
  return LaneId() < topk ? plan.dst[int64_t{token} * topk + LaneId()] : kMaskedRoute;
}

// The same as GroupSums for this rank's own tokens, in their order, which is that of TokenSums.
struct OwnSums {
  static constexpr bool kInParts = false;
  using FirstLook = int32_t;  // RouteOf
  struct SecondLook {};

  const PathView& path;
  const PlanView& plan;
  uint64_t sequence;

  __device__ FirstLook First(int32_t token) const { return RouteOf(path, plan, token); }
  __device__ SecondLook Second(int32_t) const { return {}; }
  __device__ RowSum SumOf(int32_t token, int32_t dst, SecondLook) const {
    const int32_t raw = IsMasked(dst) ? 0 : DecodeRow(dst);
    const bool own = !IsMasked(dst) && RankOf(raw, path.logical_rows) == path.rank;
    const uint32_t owns = __ballot_sync(0xffffffffu, own);
    if (__popc(owns) < 2) return {};
    BFloat16* rows = path.shards[path.rank].rows;
    BFloat16* row = RowAt(rows, own ? LocalRow(raw, path.logical_rows) : 0, path.hidden);
    RowSum sum;
    sum.row = ToFirstLanes(owns, row);
    sum.count = __popc(owns);
    // The primary is the first in order of k.
    sum.out = reinterpret_cast<void*>(
        __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row), __ffs(owns) - 1));
    sum.done = &path.own_sums[token];
    sum.mark = sequence;
    return sum;
  }
};

// A token's primary rows, wherever they are, in order of k.
struct TokenSums {
  static constexpr bool kInParts = true;
  using FirstLook = int32_t;           // RouteOf
  using SecondLook = const BFloat16*;  // the rows of the rank that has it

  const PathView& path;
  const GatherArguments& arguments;
  uint64_t sequence;

  __device__ FirstLook First(int32_t token) const { return RouteOf(path, arguments.plan, token); }
  __device__ SecondLook Second(int32_t dst) const {
    return IsMasked(dst) ? nullptr : path.shards[RankOf(DecodeRow(dst), path.logical_rows)].rows;
  }
  __device__ void GatherWeight(int64_t route, int32_t dst) const {
    float weight = 0.0f;
    if (!IsMasked(dst)) {
      const int32_t raw = DecodeRow(dst);
      const ShardView& shard = path.shards[RankOf(raw, path.logical_rows)];
      weight = shard.row_weights[LocalRow(raw, path.logical_rows)];
    }
    arguments.route_weights[route] = weight;
  }
  // Until the kernel beside this one, which waits for nobody, has summed the token's rows here.
  __device__ void AwaitOwnSum(int32_t token) const {
    while (LoadAcquireOnDevice(&path.own_sums[token]) != sequence) {
    }
    FenceBeforeBulk();
  }
  __device__ RowSum SumOf(int32_t token, int32_t dst, const BFloat16* rows) const {
    const int32_t topk = path.geometry.topk;
    if (arguments.route_weights != nullptr && LaneId() < topk) {
      GatherWeight(int64_t{token} * topk + LaneId(), dst);
    }
    const bool goes = !IsMasked(dst);
    const int32_t raw = goes ? DecodeRow(dst) : 0;
    if (arguments.own_beside) {
      const bool own = goes && RankOf(raw, path.logical_rows) == path.rank;
      if (__popc(__ballot_sync(0xffffffffu, own)) > 1) AwaitOwnSum(token);
    }
    const void* row = RowAt(rows, LocalRow(raw, path.logical_rows), path.hidden);
    const uint32_t primaries = __ballot_sync(0xffffffffu, goes && IsPrimary(dst));
    RowSum sum;
    sum.row = ToFirstLanes(primaries, row);
    sum.count = __popc(primaries);
    sum.out = RowAt(arguments.hidden, token, path.hidden);
    return sum;
  }
};

// A group of duplicates at a time.
__device__ inline void SumGroups(const PathView& path, const PlanView& plan, bool leaves_own,
                                 RowSummer& summer) {
  const int32_t used = UsedRows(plan, path.geometry);
  const int32_t groups = plan.counts->duplicate_groups;
  summer.Sum(&path.grid->next[kLocalSumQueue], groups, GroupSums{path, plan, leaves_own, used});
}

__global__ void __launch_bounds__(SummerShape::kThreads, 1)
    SumDuplicatesKernel(PathView path, PlanView plan, bool leaves_own) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  AwaitKernelAhead();
  if (Stopped(path)) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) path.grid->next_own = 0;  // of the kernel behind
  RowSummer summer(reinterpret_cast<std::byte*>(shared), path.row_bytes());
  SumGroups(path, plan, leaves_own, summer);
}

// Beside a combine, which begins when all blocks of this kernel run.
__global__ void __launch_bounds__(SummerShape::kThreads, 1)
    SumOwnKernel(PathView path, OperationMark mark, PlanView plan) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  AwaitKernelAhead();
  if (Stopped(path)) return;
  LaunchDependents();
  RowSummer summer(reinterpret_cast<std::byte*>(shared), path.row_bytes());
  summer.Sum(&path.grid->next_own, path.geometry.tokens, OwnSums{path, plan, mark.sequence});
}

// GridWords::verdicts of a combine.
enum : int { kCombineNotEntered = 0 };

// All but the kernel's first and last waits for others in the stream.
__device__ inline void Combine(const PathView& path, const OperationMark& mark,
                               const EntryArguments& entry, const GatherArguments& arguments,
                               BarrierSite site, std::byte* shared) {
  GridBarrier grid(path, mark);
  RowSummer summer(shared, path.row_bytes());
  bool ready = true;
  if (arguments.sums_groups) {
    // Alike for all blocks: none changes it before all have come to the barrier.
    if (!Stopped(path)) SumGroups(path, arguments.plan, false, summer);
    ready = grid.Sync();
  }
  // Orders: every rank's staging and local sums in its shard before the reads of it below.
  if (blockIdx.x == 0 && !(ready && Enter(path, mark, entry, site)) && threadIdx.x == 0) {
    SetVerdict(path.grid, kCombineNotEntered);
  }
  if (!ready || !grid.Sync() || Verdict(path.grid, kCombineNotEntered)) return grid.Leave();
  FenceBeforeBulk();
  summer.Sum(&path.grid->next[kTokenSumQueue], path.geometry.tokens,
             TokenSums{path, arguments, mark.sequence});
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  // Orders: the reads above before whatever any rank writes to its shard next.
  if (grid.Sync() && blockIdx.x == 0) Exit(path, mark, site);
  LaunchDependents();
  grid.Leave();
}

// A token at a time, all S of them: those past the plan's token count have no rows.
__global__ void __launch_bounds__(SummerShape::kThreads, 1)
    CombineKernel(PathView path, OperationMark mark, EntryArguments entry,
                  GatherArguments arguments) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  // All that is before SumOwnKernel in the stream has ended when that lets this one begin.
  if (!arguments.own_beside) AwaitKernelAhead();
  Combine(path, mark, entry, arguments, site, reinterpret_cast<std::byte*>(shared));
  // What is launched behind this kernel waits for it, and must wait for SumOwnKernel too.
  if (arguments.own_beside && blockIdx.x == 0) AwaitKernelAhead();
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_COMBINE_KERNEL_CUH_
