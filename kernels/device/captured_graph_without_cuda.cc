#include "kernels/device/captured_graph.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<CapturedGraph>> CapturedGraph::Capture(
    int, CUstream_st*, const std::function<absl::Status()>&) {
  return BuiltWithoutCuda();
}

CapturedGraph::~CapturedGraph() = default;

absl::Status CapturedGraph::Launch(CUstream_st*) { return BuiltWithoutCuda(); }

}  // namespace perigee
