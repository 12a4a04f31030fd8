// Step 9 of planning on the device: the lists of duplicate rows, ordered by primary row, then k,
// from the maps that source ranks wrote into this rank's shard. What a peer wrote is never used as
// an index unchecked. The blocks take a run of rows each.
#ifndef PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
#define PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_

#include <cstdint>
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

// What the map says of four neighbouring rows, a byte each. Rows past the used ones have no links:
// the owner has cleared them and nobody writes there.
__device__ inline uint32_t OrdinalsAt(const ShardView& own, int32_t quad) {
  return reinterpret_cast<const uint32_t*>(own.duplicate_ordinal)[quad];
}
// This block's run of the used rows, in units of kLinkedRows.
__device__ inline TokenRange UnitsOfBlock(int32_t used) {
  return Part({0, (used + kLinkedRows - 1) / kLinkedRows}, static_cast<int32_t>(blockIdx.x),
              static_cast<int32_t>(gridDim.x));
}
// The same in quads.
__device__ inline TokenRange QuadsOfBlock(int32_t used) {
  const TokenRange units = UnitsOfBlock(used);
  return {units.begin * (kLinkedRows / 4), units.end * (kLinkedRows / 4)};
}

// Quads of a thread.
inline constexpr int kQuads = 2;

struct ListSums {
  uint32_t groups = 0;
  uint32_t duplicates = 0;

  __device__ uint64_t packed() const { return uint64_t{groups} << 32 | duplicates; }
  // Those of four rows, a byte each.
  __device__ void Add(uint32_t ordinals) {
    const uint32_t flags = ordinals & (0x01010101u * kHasDuplicates);
    groups += __popc(flags);
    duplicates =
        __dp4a(ordinals & (flags / kHasDuplicates * kDuplicateCount), 0x01010101u, duplicates);
  }
};

// First part: how many groups and duplicates the rows before this block's have, and all rows. Every
// block counts for itself, which costs less than to wait for the others.
__device__ inline void SumLists(const PathView& path, int32_t used, ListSums* before,
                                ListSums* all) {
  __shared__ ListSums lower;
  __shared__ ListSums total;
  if (threadIdx.x == 0) lower = total = ListSums();
  __syncthreads();
  const auto* ordinals = reinterpret_cast<const uint4*>(path.shards[path.rank].duplicate_ordinal);
  const int32_t begin = UnitsOfBlock(used).begin;
  ListSums sums[2];
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < (used + kLinkedRows - 1) / kLinkedRows; i += kDispatchThreads) {
    const uint4 rows = ordinals[i];
    ListSums here;
    here.Add(rows.x);
    here.Add(rows.y);
    here.Add(rows.z);
    here.Add(rows.w);
    sums[1].groups += here.groups;
    sums[1].duplicates += here.duplicates;
    if (i >= begin) continue;
    sums[0].groups += here.groups;
    sums[0].duplicates += here.duplicates;
  }
  for (ListSums& sum : sums) {
    sum.groups = __reduce_add_sync(0xffffffffu, sum.groups);
    sum.duplicates = __reduce_add_sync(0xffffffffu, sum.duplicates);
  }
  if (LaneId() == 0 && sums[1].groups != 0) {
    atomicAdd(&total.groups, sums[1].groups);
    atomicAdd(&total.duplicates, sums[1].duplicates);
    atomicAdd(&lower.groups, sums[0].groups);
    atomicAdd(&lower.duplicates, sums[0].duplicates);
  }
  __syncthreads();
  *before = lower;
  *all = total;
}

// Second part: numbers the groups and finds where each begins. False, for all blocks alike, where
// there cannot be so many.
__device__ inline bool StartGroups(const PathView& path, const OperationMark& mark,
                                   const PlanningArguments& arguments, int32_t used) {
  using Scan = cub::BlockScan<uint64_t, kDispatchThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  const ShardView& own = path.shards[path.rank];
  const TokenRange quads = QuadsOfBlock(used);
  ListSums lower;
  ListSums total;
  SumLists(path, used, &lower, &total);
  uint64_t before = lower.packed();
  if (int64_t{total.groups} + total.duplicates > used) {
    if (threadIdx.x == 0) ReportLink(path, mark, -1, -1, static_cast<int32_t>(total.duplicates));
    return false;
  }
  // Several quads a thread: most often one round is enough.
  for (int32_t first = quads.begin; first < quads.end; first += kQuads * kDispatchThreads) {
    const int32_t at = first + kQuads * static_cast<int32_t>(threadIdx.x);
    uint32_t ordinals[kQuads];
    ListSums here;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      ordinals[i] = at + i < quads.end ? OrdinalsAt(own, at + i) : 0;
      here.Add(ordinals[i]);
    }
    uint64_t place = 0;
    uint64_t sum = 0;
    Scan(storage).ExclusiveSum(here.packed(), place, sum);
    place += before;
    before += sum;
    __syncthreads();  // `storage` is used again
    if (here.groups == 0) continue;
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) {
      const uint32_t ordinal = ordinals[i / 4] >> (8 * (i % 4)) & 0xffu;
      if ((ordinal & kHasDuplicates) == 0) continue;
      const int32_t row = 4 * at + i;
      const uint32_t count = ordinal & kDuplicateCount;
      if (row >= used || count >= static_cast<uint32_t>(path.geometry.topk)) {
        ReportLink(path, mark, row, -1, static_cast<int32_t>(count));
      }
      const auto start = static_cast<int32_t>(place & 0xffffffffu);
      const uint32_t flag = (ordinal & kExpandedAtSource) != 0 ? kOwnGroup : 0;
      arguments.plan.duplicate_groups[place >> 32] = {row, start, count | flag};
      arguments.scratch.duplicate_start[min(row, used - 1)] = start;
      place += uint64_t{1} << 32 | count;
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *arguments.plan.counts = {static_cast<int32_t>(total.groups),
                              static_cast<int32_t>(total.duplicates)};
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
    const int4 quad = reinterpret_cast<const int4*>(own.duplicate_primary)[at];
    const int32_t primaries[4] = {quad.x, quad.y, quad.z, quad.w};
    const uint32_t ordinals = OrdinalsAt(own, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t primary = primaries[i];
      if (primary == -1) continue;
      const auto ordinal = static_cast<int32_t>(ordinals >> (8 * i) & 0xffu);
      const bool known = primary >= 0 && primary < used;
      // All three at once.
      const int32_t primary_of = known ? own.duplicate_primary[primary] : 0;
      const int32_t start = known ? __ldcg(&arguments.scratch.duplicate_start[primary]) : 0;
      const uint32_t of_primary = known ? own.duplicate_ordinal[primary] : 0;
      const bool has = primary_of == -1 && (of_primary & kHasDuplicates) != 0;
      const auto count = has ? static_cast<int32_t>(of_primary & kDuplicateCount) : 0;
      if (ordinal < 1 || ordinal > count ||
          atomicExch(&arguments.plan.duplicate_rows[start + ordinal - 1], 4 * at + i) != -1) {
        ReportLink(path, mark, 4 * at + i, primary, ordinal);
      }
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
