#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/prefetch_kernel.cuh"
#include "kernels/cuda/prefetch_launch.h"

namespace perigee {

int LaunchPrefetch(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                   const EntryArguments& entry, const PlanView& plan, const WeightsView& weights,
                   uint32_t* slot_is_good) {
  return LaunchDependent(target, PrefetchKernel, target.sms, kCopyThreads, 0, path, mark, entry,
                         plan, weights, slot_is_good);
}

int LaunchFillSlots(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                    const WeightsView& weights, uint32_t* slot_is_good) {
  cudaStream_t stream = target.stream;
  CheckSlotsKernel<<<1, kSlotThreads, 0, stream>>>(path, plan, weights, slot_is_good, false);
  if (path.geometry.slots > 0) {
    CopySlotsKernel<<<target.sms, kCopyThreads, 0, stream>>>(path, plan, weights, slot_is_good);
  }
  CheckSlotsKernel<<<1, kSlotThreads, 0, stream>>>(path, plan, weights, slot_is_good, true);
  return cudaGetLastError();
}

int LaunchReportStaleSlot(const LaunchTarget& target, const PathView& path,
                          const OperationMark& mark, const PlanView& plan) {
  ReportStaleSlotKernel<<<1, 1, 0, target.stream>>>(path, mark, plan);
  return cudaGetLastError();
}

int LoadPrefetchKernels() {
  return LoadKernels(PrefetchKernel, CheckSlotsKernel, CopySlotsKernel, ReportStaleSlotKernel);
}

}  // namespace perigee
