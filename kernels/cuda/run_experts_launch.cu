#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/plan_experts_kernel.cuh"
#include "kernels/cuda/run_experts_kernel.cuh"
#include "kernels/cuda/run_experts_launch.h"

namespace perigee {
namespace {

// Computing waits for nobody, so it is not held to the buffer's budget of SMs.
dim3 TileGrid(int32_t columns, const Geometry& geometry) {
  const int64_t tiles = std::clamp<int64_t>(MaxTiles(geometry), 1, 1024);
  return dim3((columns + kTileColumns - 1) / kTileColumns, static_cast<unsigned>(tiles));
}

}  // namespace

int LaunchRunExperts(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                     const ExpertsArguments& arguments) {
  cudaStream_t stream = target.stream;
  PlanTilesKernel<<<1, kPlanExpertsThreads, 0, stream>>>(path, mark, arguments);
  const dim3 gate_up = TileGrid(arguments.weights.shape.intermediate, path.geometry);
  GateUpKernel<<<gate_up, kExpertThreads, 0, stream>>>(path, arguments);
  DownKernel<<<TileGrid(path.hidden, path.geometry), kExpertThreads, 0, stream>>>(path, arguments);
  ZeroOutputPaddingKernel<<<target.sms, kRowThreads, 0, stream>>>(path, arguments);
  RecheckHomesKernel<<<1, kPlanExpertsThreads, 0, stream>>>(path, mark, arguments);
  return cudaGetLastError();
}

int LoadRunExpertsKernels() {
  return LoadKernels(PlanTilesKernel, GateUpKernel, DownKernel, ZeroOutputPaddingKernel,
                     RecheckHomesKernel);
}

}  // namespace perigee
