#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/rank_barrier_kernel.cuh"
#include "kernels/cuda/rank_barrier_launch.h"

namespace perigee {

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

int LoadRankBarrierKernels() { return LoadKernels(EntryBarrierKernel, ExitBarrierKernel); }

}  // namespace perigee
