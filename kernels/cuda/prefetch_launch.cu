#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/prefetch_kernel.cuh"
#include "kernels/cuda/prefetch_launch.h"

namespace perigee {

int LaunchPrefetch(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const EntryArguments& entry, const PlanView& plan, const WeightsView& weights,
                   uint32_t* bad_slots) {
  return LaunchDependent(target, PrefetchKernel, target.sms, kCopyThreads, SlotStages::kSharedBytes,
                         path, mark, entry, plan, weights, bad_slots);
}

int LaunchFillSlots(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                    const FillPace& pace, const PlanView& plan, const WeightsView& weights,
                    uint32_t* bad_slots) {
  cudaStream_t stream = target.stream;
  BeginFillKernel<<<1, kSlotThreads, 0, stream>>>(path, mark, pace, plan, weights, bad_slots);
  CopySlotsKernel<<<target.sms, kCopyThreads, SlotStages::kSharedBytes, stream>>>(
      path, mark, pace, plan, weights, bad_slots);
  CloseSlotsKernel<<<1, kSlotThreads, 0, stream>>>(path, mark, plan, weights, bad_slots);
  return cudaGetLastError();
}

int LaunchReportStaleSlot(const LaunchTarget& target, const PathView& path,
                          const OperationMark& mark, const PlanView& plan) {
  ReportStaleSlotKernel<<<1, 1, 0, target.stream>>>(path, mark, plan);
  return cudaGetLastError();
}

int LoadPrefetchKernels() {
  const int error = AllowSharedMemory(SlotStages::kSharedBytes, PrefetchKernel, CopySlotsKernel);
  if (error != 0) return error;
  return LoadKernels(PrefetchKernel, BeginFillKernel, CopySlotsKernel, CloseSlotsKernel,
                     ReportStaleSlotKernel);
}

}  // namespace perigee
