#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/probe_copy_kernel.cuh"
#include "kernels/cuda/probe_copy_launch.h"

namespace perigee {

int LaunchProbeCopy(const LaunchTarget& target, const PathView& path, BFloat16* to,
                    const BFloat16* from, int64_t rows) {
  // H is a multiple of 8: whole vectors.
  const int64_t vectors = rows * path.hidden * static_cast<int64_t>(sizeof(BFloat16)) / 16;
  ProbeCopyKernel<<<target.sms, kProbeThreads, 0, target.stream>>>(
      path, reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from), vectors);
  return cudaGetLastError();
}

int LoadProbeCopyKernels() { return LoadKernels(ProbeCopyKernel); }

}  // namespace perigee
