// A plain copy of rows by a grid of a given size: what the machine's copy rate is measured with.
#ifndef PERIGEE_KERNELS_CUDA_PROBE_COPY_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_PROBE_COPY_KERNEL_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"

namespace perigee {

inline constexpr int kProbeThreads = 1024;
inline constexpr int kProbeVectors = 4;  // loads in flight per thread before the first store

__global__ void __launch_bounds__(kProbeThreads)
    ProbeCopyKernel(PathView path, uint4* to, const uint4* from, int64_t count) {
  if (Stopped(path)) return;
  const int64_t step = int64_t{gridDim.x} * kProbeThreads;
  int64_t at = int64_t{blockIdx.x} * kProbeThreads + threadIdx.x;
  for (; at + (kProbeVectors - 1) * step < count; at += kProbeVectors * step) {
    uint4 held[kProbeVectors];
#pragma unroll
    for (int i = 0; i < kProbeVectors; ++i) held[i] = from[at + i * step];
#pragma unroll
    for (int i = 0; i < kProbeVectors; ++i) to[at + i * step] = held[i];
  }
  for (; at < count; at += step) to[at] = from[at];
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PROBE_COPY_KERNEL_CUH_
