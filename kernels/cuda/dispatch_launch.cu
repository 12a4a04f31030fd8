#include <cuda_runtime_api.h>

#include "kernels/cuda/dispatch_kernel.cuh"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/load_kernels.cuh"

namespace perigee {

int LaunchSend(const LaunchTarget& target, const PathView& path, const SendArguments& arguments) {
  if (arguments.token_count > 0) {
    SendKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, arguments);
  }
  ZeroPaddingKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, arguments.plan);
  return cudaGetLastError();
}

int LaunchExpand(const LaunchTarget& target, const PathView& path, const PlanView& plan) {
  ExpandKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, plan);
  return cudaGetLastError();
}

int LaunchCopyUsedRows(const LaunchTarget& target, const PathView& path, const PlanView& plan,
                       const CopyArguments& copy) {
  if (copy.rows_to == nullptr && copy.weights_to == nullptr) return 0;
  CopyUsedRowsKernel<<<target.sms, kRowThreads, 0, target.stream>>>(path, plan, copy);
  return cudaGetLastError();
}

int LoadDispatchKernels() {
  return LoadKernels(SendKernel, ZeroPaddingKernel, ExpandKernel, CopyUsedRowsKernel);
}

}  // namespace perigee
