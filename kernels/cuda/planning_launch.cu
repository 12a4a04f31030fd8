#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/cuda/assign_routes_kernel.cuh"
#include "kernels/cuda/count_routes_kernel.cuh"
#include "kernels/cuda/list_duplicates_kernel.cuh"
#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/placement_kernel.cuh"
#include "kernels/cuda/planning_launch.h"

namespace perigee {
namespace {

int BlocksFor(int64_t threads, int threads_per_block) {
  const int64_t blocks = (threads + threads_per_block - 1) / threads_per_block;
  return static_cast<int>(std::clamp<int64_t>(blocks, 1, 1024));
}

}  // namespace

int LaunchCountRoutes(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                      const PlanningArguments& arguments) {
  const RouteChunks chunks = RouteChunks::Of(path.geometry);
  const size_t words = static_cast<size_t>(chunks.count) * path.geometry.experts;
  int error =
      cudaMemsetAsync(arguments.scratch.chunk_counts, 0, words * sizeof(int32_t), target.stream);
  if (error != 0) return error;
  error = cudaMemsetAsync(&path.state->bad_route, 0xff, sizeof(uint32_t), target.stream);
  if (error != 0) return error;
  const int blocks = BlocksFor(int64_t{chunks.count} * kWarp, kChunkThreads);
  CountChunksKernel<<<blocks, kChunkThreads, 0, target.stream>>>(path, arguments, chunks);
  PublishCountsKernel<<<BlocksFor(path.geometry.experts, 128), 128, 0, target.stream>>>(
      path, mark, arguments, chunks);
  return cudaGetLastError();
}

int LaunchMakePlan(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const PlanningArguments& arguments) {
  const int ranks = path.geometry.ranks;
  const RouteChunks chunks = RouteChunks::Of(path.geometry);
  const PlanningScratch& scratch = arguments.scratch;
  cudaStream_t stream = target.stream;
  CollectCountsKernel<<<ranks, kPlacementThreads, 0, stream>>>(path, mark, scratch);
  BalanceKernel<<<1, kPlacementThreads, 0, stream>>>(path, scratch, arguments.plan);
  SplitKernel<<<ranks, kPlacementThreads, 0, stream>>>(path, scratch);
  ArrangeGroupsKernel<<<ranks, kPlacementThreads, 0, stream>>>(path, scratch, arguments.plan);
  const int blocks = BlocksFor(int64_t{chunks.count} * kWarp, kChunkThreads);
  AssignRoutesKernel<<<blocks, kChunkThreads, 0, stream>>>(path, arguments, chunks);
  const int64_t masked = int64_t{path.geometry.tokens - arguments.token_count} * path.geometry.topk;
  if (masked > 0) {
    MaskLaterTokensKernel<<<BlocksFor(masked, 256), 256, 0, stream>>>(path, arguments);
  }
  return cudaGetLastError();
}

int LaunchListDuplicates(const LaunchTarget& target, const PathView& path,
                         const OperationMark& mark, const PlanningArguments& arguments) {
  const size_t bytes = static_cast<size_t>(path.logical_rows) * sizeof(int32_t);
  int error = cudaMemsetAsync(arguments.scratch.duplicates_of, 0, bytes, target.stream);
  if (error != 0) return error;
  error = cudaMemsetAsync(arguments.plan.duplicate_rows, 0xff, bytes, target.stream);
  if (error != 0) return error;
  const int blocks = std::clamp(path.geometry.groups(), 1, 4 * target.sms);
  CountDuplicatesKernel<<<blocks, kListThreads, 0, target.stream>>>(path, mark, arguments);
  StartDuplicatesKernel<<<1, kListScanThreads, 0, target.stream>>>(path, arguments);
  PlaceDuplicatesKernel<<<blocks, kListThreads, 0, target.stream>>>(path, mark, arguments);
  return cudaGetLastError();
}

int LoadPlanningKernels() {
  return LoadKernels(CountChunksKernel, PublishCountsKernel, CollectCountsKernel, BalanceKernel,
                     SplitKernel, ArrangeGroupsKernel, AssignRoutesKernel, MaskLaterTokensKernel,
                     CountDuplicatesKernel, StartDuplicatesKernel, PlaceDuplicatesKernel);
}

}  // namespace perigee
