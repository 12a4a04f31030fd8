// What the groups of a rank compute with, checked before the first product and after the last.
#ifndef PERIGEE_KERNELS_CUDA_PLAN_EXPERTS_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PLAN_EXPERTS_KERNEL_CUH_

#include <cstdint>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/run_experts_launch.h"
#include "kernels/cuda/weights_words.cuh"

namespace perigee {

inline constexpr int kPlanExpertsThreads = 256;

// Whether a non-empty group's weights are those that are wanted.
__device__ inline bool GroupIsGood(const PathView& path, const ExpertsArguments& arguments,
                                   int32_t group) {
  const int32_t slot = group - path.geometry.experts;
  if (slot < 0) {
    const HomeHeader held = ReadHome(arguments.weights, path.geometry.home_rank(group));
    return HomeHolds(arguments.weights, held);
  }
  const SlotTag held = *SlotTagAt(arguments.weights, slot);
  return held ==
         WantedTag(arguments.weights, ExpertInSlot(arguments.plan, path.geometry, path.rank, slot));
}

__device__ inline void RefuseGroup(const PathView& path, const OperationMark& mark,
                                   const ExpertsArguments& arguments, int32_t group) {
  if (!ClaimReport(path, PathStop::kDecline)) return;
  Report& report = path.page->report;
  const int32_t slot = group - path.geometry.experts;
  report.slot = slot;
  if (slot < 0) {
    report.rank = path.geometry.home_rank(group);
    report.home = ReadHome(arguments.weights, report.rank);
    Publish(report, mark, ReportKind::kHomeRefused);
    return;
  }
  report.held = *SlotTagAt(arguments.weights, slot);
  report.wanted =
      WantedTag(arguments.weights, ExpertInSlot(arguments.plan, path.geometry, path.rank, slot));
  Publish(report, mark, ReportKind::kSlotRefused);
}

// One block: cuts the groups into tiles. Slots are named before homes, each by the lowest group.
__global__ void __launch_bounds__(kPlanExpertsThreads)
    PlanTilesKernel(PathView path, OperationMark mark, ExpertsArguments arguments) {
  if (Stopped(path)) return;
  using Scan = cub::BlockScan<int32_t, kPlanExpertsThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ int32_t refused_slot;
  __shared__ int32_t refused_home;
  if (threadIdx.x == 0) refused_slot = refused_home = INT32_MAX;
  __syncthreads();
  const Geometry& geometry = path.geometry;
  int32_t before = 0;
  for (int32_t first = 0; first < geometry.groups(); first += kPlanExpertsThreads) {
    const int32_t group = first + static_cast<int32_t>(threadIdx.x);
    DeviceGroupRows rows;
    if (group < geometry.groups()) rows = RowsOfGroup(arguments.plan, group);
    const int32_t count = rows.filled - rows.begin;
    int32_t place = 0;
    int32_t sum = 0;
    Scan(storage).ExclusiveSum((count + kTileRows - 1) / kTileRows, place, sum);
    place += before;
    before += sum;
    __syncthreads();  // `storage` is used again
    if (count == 0) continue;
    const int32_t slot = group - geometry.experts;
    if (!GroupIsGood(path, arguments, group)) {
      atomicMin(slot < 0 ? &refused_home : &refused_slot, group);
    }
    const DeviceMatrices matrices = slot < 0 ? HomeMatrices(arguments.weights, geometry, group)
                                             : SlotMatrices(arguments.weights, slot);
    for (int32_t row = rows.begin; row < rows.filled; row += kTileRows) {
      arguments.tiles[place++] = {matrices, row, min(kTileRows, rows.filled - row)};
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  *arguments.tile_count = before;
  const int32_t refused = refused_slot != INT32_MAX ? refused_slot : refused_home;
  if (refused != INT32_MAX) RefuseGroup(path, mark, arguments, refused);
}

// Home blocks that were read in place must hold what they held before.
__global__ void __launch_bounds__(kPlanExpertsThreads)
    RecheckHomesKernel(PathView path, OperationMark mark, ExpertsArguments arguments) {
  if (Stopped(path)) return;
  for (int32_t group = threadIdx.x; group < path.geometry.experts; group += blockDim.x) {
    const DeviceGroupRows rows = RowsOfGroup(arguments.plan, group);
    if (rows.filled == rows.begin || GroupIsGood(path, arguments, group)) continue;
    if (!ClaimReport(path, PathStop::kDecline)) return;
    Report& report = path.page->report;
    report.rank = path.geometry.home_rank(group);
    report.home = ReadHome(arguments.weights, report.rank);
    Publish(report, mark, ReportKind::kHomeChanged);
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLAN_EXPERTS_KERNEL_CUH_
