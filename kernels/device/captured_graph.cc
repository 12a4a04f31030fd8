#include "kernels/device/captured_graph.h"

#include <cuda_runtime_api.h>

#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<CapturedGraph>> CapturedGraph::Capture(
    int device, CUstream_st* stream, const std::function<absl::Status()>& submit) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  // Others in the process go on allocating meanwhile.
  absl::Status status = CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                                   "beginning to capture");
  if (!status.ok()) return status;
  const absl::Status submitted = submit();
  cudaGraph_t graph = nullptr;
  status = CudaStatus(cudaStreamEndCapture(stream, &graph), "capturing");
  if (!submitted.ok()) status = submitted;
  cudaGraphExec_t executable = nullptr;
  if (status.ok()) {
    status = CudaStatus(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  }
  if (graph != nullptr) LogCudaError(CudaStatus(cudaGraphDestroy(graph), "freeing a graph"));
  if (!status.ok()) return status;
  return std::unique_ptr<CapturedGraph>(new CapturedGraph(device, executable));
}

CapturedGraph::~CapturedGraph() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaGraphExecDestroy(graph_), "freeing a graph")
                          : scope.status());
}

absl::Status CapturedGraph::Launch(CUstream_st* stream) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaGraphLaunch(graph_, stream), "launching a graph");
}

}  // namespace perigee
