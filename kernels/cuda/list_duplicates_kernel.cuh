// Step 9 of planning on the device: the lists of duplicate rows, ordered by primary row, then k,
// from the maps that source ranks wrote into this rank's shard. What a peer wrote is never used as
// an index unchecked.
#ifndef PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_KERNEL_CUH_

#include <cstdint>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/planning_launch.h"

namespace perigee {

inline constexpr int kListThreads = 256;
inline constexpr int kListScanThreads = 1024;

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

// duplicates_of is zero. Block b takes groups b, b + gridDim, ...
__global__ void __launch_bounds__(kListThreads)
    CountDuplicatesKernel(PathView path, OperationMark mark, PlanningArguments arguments) {
  if (Stopped(path)) return;
  const ShardView& own = path.shards[path.rank];
  const int32_t used = UsedRows(arguments.plan, path.geometry);
  for (int32_t group = blockIdx.x; group < path.geometry.groups(); group += gridDim.x) {
    const DeviceGroupRows rows = RowsOfGroup(arguments.plan, group);
    for (int32_t row = rows.begin + threadIdx.x; row < rows.filled; row += blockDim.x) {
      const int32_t primary = own.duplicate_primary[row];
      if (primary == -1) continue;
      if (primary < 0 || primary >= used || own.duplicate_primary[primary] != -1) {
        ReportLink(path, mark, row, primary, own.duplicate_ordinal[row]);
        return;
      }
      atomicAdd(&arguments.scratch.duplicates_of[primary], 1);
    }
  }
}

// One block: numbers the groups and finds where each begins, in order of primary rows. Each thread
// takes a run of rows; groups are counted in the upper half of a word, their rows in the lower.
__global__ void __launch_bounds__(kListScanThreads)
    StartDuplicatesKernel(PathView path, PlanningArguments arguments) {
  if (Stopped(path)) return;
  using Scan = cub::BlockScan<uint64_t, kListScanThreads>;
  __shared__ typename Scan::TempStorage storage;
  const int32_t used = UsedRows(arguments.plan, path.geometry);
  const int32_t run = (used + kListScanThreads - 1) / kListScanThreads;
  const int32_t begin = min(static_cast<int32_t>(threadIdx.x) * run, used);
  const int32_t end = min(begin + run, used);
  const int32_t* duplicates_of = arguments.scratch.duplicates_of;
  uint64_t own = 0;
  for (int32_t row = begin; row < end; ++row) {
    const auto count = static_cast<uint32_t>(duplicates_of[row]);
    own += (count > 0 ? uint64_t{1} << 32 : 0) + count;
  }
  uint64_t before = 0;
  uint64_t total = 0;
  Scan(storage).ExclusiveSum(own, before, total);
  for (int32_t row = begin; row < end; ++row) {
    const int32_t count = duplicates_of[row];
    if (count == 0) continue;
    const auto start = static_cast<int32_t>(before & 0xffffffffu);
    arguments.plan.duplicate_groups[before >> 32] = {row, start, count};
    arguments.scratch.duplicate_start[row] = start;
    before += (uint64_t{1} << 32) + static_cast<uint32_t>(count);
  }
  if (threadIdx.x == 0) {
    *arguments.plan.counts = {static_cast<int32_t>(total >> 32),
                              static_cast<int32_t>(total & 0xffffffffu)};
  }
}

// duplicate_rows is -1 everywhere: two rows that claim one place are found out.
__global__ void __launch_bounds__(kListThreads)
    PlaceDuplicatesKernel(PathView path, OperationMark mark, PlanningArguments arguments) {
  if (Stopped(path)) return;
  const ShardView& own = path.shards[path.rank];
  const int32_t used = UsedRows(arguments.plan, path.geometry);
  for (int32_t group = blockIdx.x; group < path.geometry.groups(); group += gridDim.x) {
    const DeviceGroupRows rows = RowsOfGroup(arguments.plan, group);
    for (int32_t row = rows.begin + threadIdx.x; row < rows.filled; row += blockDim.x) {
      const int32_t primary = own.duplicate_primary[row];
      if (primary == -1) continue;
      const int32_t ordinal = own.duplicate_ordinal[row];
      const bool known = primary >= 0 && primary < used;
      if (!known || ordinal < 1 || ordinal > arguments.scratch.duplicates_of[primary] ||
          atomicExch(&arguments.plan
                          .duplicate_rows[arguments.scratch.duplicate_start[primary] + ordinal - 1],
                     row) != -1) {
        ReportLink(path, mark, row, primary, ordinal);
        return;
      }
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_KERNEL_CUH_
