// What a stream was given, to be run again and again: how clients of rings use CUDA graphs, for
// tests.
#ifndef PERIGEE_KERNELS_DEVICE_CAPTURED_GRAPH_H_
#define PERIGEE_KERNELS_DEVICE_CAPTURED_GRAPH_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;     // what cudaStream_t points to
struct CUgraphExec_st;  // what cudaGraphExec_t points to

namespace perigee {

// Not thread-safe. Errors as kernels/device/cuda_status.h has them.
class CapturedGraph {
 public:
  // Captures what `submit` puts into the stream, of this device; nothing of it runs.
  static absl::StatusOr<std::unique_ptr<CapturedGraph>> Capture(
      int device, CUstream_st* stream, const std::function<absl::Status()>& submit);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  absl::Status Launch(CUstream_st* stream);

 private:
  CapturedGraph(int device, CUgraphExec_st* graph) : device_(device), graph_(graph) {}

  const int device_;
  CUgraphExec_st* const graph_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_CAPTURED_GRAPH_H_
