// A buffer's shape as the wire has it, checked and completed with its defaults. Everything behind
// it takes checked shapes only.
#ifndef PERIGEE_WORKER_MEMORY_BUFFER_SHAPE_H_
#define PERIGEE_WORKER_MEMORY_BUFFER_SHAPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/weights_layout.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

struct BufferShape {
  Geometry geometry;
  int32_t hidden = 0;        // H
  int32_t intermediate = 0;  // H'; 0: no weights are kept
  int32_t layers = 0;        // 0 exactly where H' is 0

  bool gradients = false;  // only where there are weights and B >= E/R
  WeightFormat weight_format = WeightFormat::kBFloat16;
  bool weight_scales = false;  // never with bf16
  bool source_storage = false;
  bool peer_store = false;
  bool refetch = false;  // a program's run_experts fills slots that are stale
  int32_t dispatch_output_slots = 0;
  int32_t expert_output_slots = 0;

  bool has_weights() const { return layers > 0; }
  WeightsShape weights() const {
    return WeightsShape{hidden, intermediate, weight_format, weight_scales};
  }
  // That a layer's weights consist of (kernels/layout/weights_layout.h).
  int weight_parts() const { return weight_scales ? kWeightParts : kWeightMatrices; }
  friend bool operator==(const BufferShape&, const BufferShape&) = default;
};

// INVALID_ARGUMENT, naming the field, what it is and what was expected.
absl::StatusOr<BufferShape> ParseBufferShape(const v1::BufferShape& shape, int32_t ranks);

}  // namespace perigee

#endif  // PERIGEE_WORKER_MEMORY_BUFFER_SHAPE_H_
