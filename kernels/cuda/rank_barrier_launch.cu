#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/rank_barrier.cuh"
#include "kernels/cuda/rank_barrier_launch.h"

namespace perigee {
namespace {

__global__ void __launch_bounds__(kBarrierThreads)
    EntryBarrierKernel(PathView path, OperationMark mark, EntryArguments entry, bool wait) {
  Enter(path, mark, entry, LoadBarrierSite(path), wait);
}

__global__ void __launch_bounds__(kBarrierThreads)
    ExitBarrierKernel(PathView path, OperationMark mark) {
  if (!Stopped(path)) Exit(path, mark, LoadBarrierSite(path));
}

// Orders: reads of kernels ahead before whoever loads the word with acquire.
__global__ void FreeSlotKernel(PathView path, uint64_t* word) {
  if (!Stopped(path)) StoreRelease(word, 1);
}

}  // namespace

int LaunchFreeSlot(const LaunchTarget& target, const PathView& path, uint64_t* word) {
  FreeSlotKernel<<<1, 1, 0, target.stream>>>(path, word);
  return cudaGetLastError();
}

int LaunchEntryBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                       const EntryArguments& entry) {
  EntryBarrierKernel<<<1, kBarrierThreads, 0, target.stream>>>(path, mark, entry, true);
  return cudaGetLastError();
}

int LaunchArrival(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry) {
  EntryBarrierKernel<<<1, kBarrierThreads, 0, target.stream>>>(path, mark, entry, false);
  return cudaGetLastError();
}

int LaunchExitBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark) {
  ExitBarrierKernel<<<1, kBarrierThreads, 0, target.stream>>>(path, mark);
  return cudaGetLastError();
}

int LoadRankBarrierKernels() {
  return LoadKernels(EntryBarrierKernel, ExitBarrierKernel, FreeSlotKernel);
}

}  // namespace perigee
