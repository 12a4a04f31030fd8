#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/staged_kernel.cuh"
#include "kernels/cuda/staged_launch.h"

namespace perigee {

int LaunchCopyRows(const LaunchTarget& target, const RowListView& to, const RowListView& from,
                   int64_t count, int32_t hidden) {
  CopyRowsKernel<<<target.sms, kRowThreads, 0, target.stream>>>(to, from, count, hidden);
  return cudaGetLastError();
}

int LaunchCopyFloats(const LaunchTarget& target, const FloatListView& to, const FloatListView& from,
                     int64_t count) {
  CopyFloatsKernel<<<target.sms, kFloatThreads, 0, target.stream>>>(to, from, count);
  return cudaGetLastError();
}

int LaunchSumRows(const LaunchTarget& target, const RowSumsView& sums, int32_t hidden) {
  SumRowsKernel<<<target.sms, kRowThreads, 0, target.stream>>>(sums, hidden);
  return cudaGetLastError();
}

int LaunchAddFloats(const LaunchTarget& target, float* to, const float* from, int64_t count) {
  AddFloatsKernel<<<target.sms, kFloatThreads, 0, target.stream>>>(to, from, count);
  return cudaGetLastError();
}

int LoadStagedKernels() {
  return LoadKernels(CopyRowsKernel, CopyFloatsKernel, SumRowsKernel, AddFloatsKernel);
}

}  // namespace perigee
