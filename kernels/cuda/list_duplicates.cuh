// Step 9 of planning on the device: the lists of duplicate rows, ordered by primary row, then k,
// from the maps that source ranks wrote into this rank's shard. What a peer wrote is never used as
// an index unchecked. The blocks take a run of rows each.
#ifndef PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
#define PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/send_routes.cuh"

namespace perigee {

__device__ inline void ReportLink(const PathView& path, const OperationMark& mark, int32_t row,
                                  int32_t primary, int32_t ordinal) {
  if (!BreakPath(path)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kExit);
  report.row = row;
  report.primary = primary;
  report.ordinal = ordinal;
  Publish(report, mark, ReportKind::kLinks);
}

// Four neighbouring rows of the map, read at once. Rows past the used ones have no links: the owner
// has cleared them and nobody writes there.
struct LinkQuad {
  int32_t primary[4];
  uint32_t ordinals;  // a byte each

  __device__ uint32_t ordinal(int i) const { return ordinals >> (8 * i) & 0xffu; }
  // Of a primary with duplicates: 1 << 32, a group, and their number; 0 of all other rows.
  __device__ uint64_t group(int i) const {
    const uint32_t count = ordinal(i) & ~uint32_t{kExpandedAtSource};
    return primary[i] != -1 || count == 0 ? 0 : (uint64_t{1} << 32 | count);
  }
};
__device__ inline LinkQuad QuadAt(const ShardView& own, int32_t quad) {
  const int4 primary = reinterpret_cast<const int4*>(own.duplicate_primary)[quad];
  return {{primary.x, primary.y, primary.z, primary.w},
          reinterpret_cast<const uint32_t*>(own.duplicate_ordinal)[quad]};
}
// This block's run of the used rows, in quads.
__device__ inline TokenRange QuadsOfBlock(int32_t used) {
  return Part({0, (used + 3) / 4}, static_cast<int32_t>(blockIdx.x),
              static_cast<int32_t>(gridDim.x));
}

// First part: how many groups and duplicates the rows of this block have.
__device__ inline void CountGroups(const PathView& path, const PlanningArguments& arguments,
                                   int32_t used) {
  using Reduce = cub::BlockReduce<uint64_t, kDispatchThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const ShardView& own = path.shards[path.rank];
  const TokenRange quads = QuadsOfBlock(used);
  uint64_t sum = 0;
  for (int32_t at = quads.begin + threadIdx.x; at < quads.end; at += kDispatchThreads) {
    const LinkQuad quad = QuadAt(own, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += quad.group(i);
  }
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) arguments.scratch.list_sums[blockIdx.x] = sum;
}

// Sums of the blocks before this one and of all, for all threads.
__device__ inline void SumLists(const uint64_t* list_sums, uint64_t* before, uint64_t* all) {
  __shared__ uint64_t sums[2];
  if (threadIdx.x < kWarp) {
    uint64_t lower = 0;
    uint64_t total = 0;
    for (uint32_t block = threadIdx.x; block < gridDim.x; block += kWarp) {
      const uint64_t sum = __ldcg(reinterpret_cast<const unsigned long long*>(&list_sums[block]));
      total += sum;
      if (block < blockIdx.x) lower += sum;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      lower += __shfl_xor_sync(0xffffffffu, lower, offset);
      total += __shfl_xor_sync(0xffffffffu, total, offset);
    }
    if (threadIdx.x == 0) {
      sums[0] = lower;
      sums[1] = total;
    }
  }
  __syncthreads();
  *before = sums[0];
  *all = sums[1];
}

// Second part, when all blocks have counted: numbers the groups and finds where each begins. False,
// for all blocks alike, where there cannot be so many.
__device__ inline bool StartGroups(const PathView& path, const OperationMark& mark,
                                   const PlanningArguments& arguments, int32_t used) {
  using Scan = cub::BlockScan<uint64_t, kDispatchThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  const ShardView& own = path.shards[path.rank];
  const TokenRange quads = QuadsOfBlock(used);
  uint64_t before = 0;
  uint64_t total = 0;
  SumLists(arguments.scratch.list_sums, &before, &total);
  const auto groups = static_cast<int32_t>(total >> 32);
  const auto duplicates = static_cast<int32_t>(total & 0xffffffffu);
  if (int64_t{groups} + duplicates > used) {
    if (threadIdx.x == 0) ReportLink(path, mark, -1, -1, duplicates);
    return false;
  }
  for (int32_t first = quads.begin; first < quads.end; first += kDispatchThreads) {
    const int32_t at = first + static_cast<int32_t>(threadIdx.x);
    LinkQuad quad = {};  // primary 0: no groups
    if (at < quads.end) quad = QuadAt(own, at);
    uint64_t here = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) here += quad.group(i);
    uint64_t place = 0;
    uint64_t sum = 0;
    Scan(storage).ExclusiveSum(here, place, sum);
    place += before;
    before += sum;
    __syncthreads();  // `storage` is used again
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint64_t group = quad.group(i);
      if (group == 0) continue;
      const auto start = static_cast<int32_t>(place & 0xffffffffu);
      auto count = static_cast<uint32_t>(group & 0xffffffffu);
      if (count >= static_cast<uint32_t>(path.geometry.topk)) {
        ReportLink(path, mark, 4 * at + i, -1, static_cast<int32_t>(count));
      }
      if (quad.ordinal(i) & kExpandedAtSource) count |= kExpandedGroup;
      arguments.plan.duplicate_groups[place >> 32] = {4 * at + i, start, count};
      arguments.scratch.duplicate_start[4 * at + i] = start;
      place += group;
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *arguments.plan.counts = {groups, duplicates};
  }
  return true;
}

// Third part, when all blocks have done the second. duplicate_rows is -1 everywhere before: two
// rows that claim one place are found out here, a place that none has claimed by who reads it.
__device__ inline void PlaceDuplicates(const PathView& path, const OperationMark& mark,
                                       const PlanningArguments& arguments, int32_t used) {
  const ShardView& own = path.shards[path.rank];
  const TokenRange quads = QuadsOfBlock(used);
  for (int32_t at = quads.begin + threadIdx.x; at < quads.end; at += kDispatchThreads) {
    const LinkQuad quad = QuadAt(own, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t primary = quad.primary[i];
      if (primary == -1) continue;
      const auto ordinal = static_cast<int32_t>(quad.ordinal(i));
      const bool known = primary >= 0 && primary < used;
      // All three at once.
      const int32_t primary_of = known ? own.duplicate_primary[primary] : 0;
      const int32_t start = known ? __ldcg(&arguments.scratch.duplicate_start[primary]) : 0;
      int32_t count = known ? own.duplicate_ordinal[primary] & ~kExpandedAtSource : 0;
      if (primary_of != -1) count = 0;
      if (ordinal < 1 || ordinal > count ||
          atomicExch(&arguments.plan.duplicate_rows[start + ordinal - 1], 4 * at + i) != -1) {
        ReportLink(path, mark, 4 * at + i, primary, ordinal);
      }
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
