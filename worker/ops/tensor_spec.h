// What a tensor is, as a header on the wire says it, checked; and what a buffer accepts under which
// target.
#ifndef PERIGEE_WORKER_OPS_TENSOR_SPEC_H_
#define PERIGEE_WORKER_OPS_TENSOR_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/v1/worker.pb.h"
#include "worker/memory/buffer_shape.h"

namespace perigee {

struct TensorSpec {
  v1::TensorDtype dtype = v1::TENSOR_DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  size_t size_bytes = 0;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The size follows from dtype and shape, which are known to be sound.
TensorSpec MakeTensorSpec(v1::TensorDtype dtype, std::vector<int64_t> shape);
v1::TensorHeader ToHeader(const TensorSpec& spec);
// For people: "bfloat16 [16, 64]".
std::string Describe(const TensorSpec& spec);

// INVALID_ARGUMENT: an unknown dtype, more than 4 dimensions, a negative or overlarge one, or a
// size_bytes that is not what dtype and shape make.
absl::StatusOr<TensorSpec> ParseTensorHeader(const v1::TensorHeader& header);

// Of the factors of a product.
inline constexpr int64_t kMaxProductDepth = 65536;

// The rows in a shard, [NvS, H] bf16, and their weights, [NvS] float32.
TensorSpec RowsSpec(const BufferShape& shape);
TensorSpec RowWeightsSpec(const BufferShape& shape);

// INVALID_ARGUMENT, saying what was expected, unless `spec` is [n, H] bf16, [n, K] int32 or [n, K]
// float32 with n <= S, one of those above, or a factor of a product: [n, C] or [C, H] bf16 with C a
// multiple of 8, at most kMaxProductDepth.
absl::Status CheckNamedTensor(const TensorSpec& spec, const BufferShape& shape);
// Index of what a checked target names among the parts of weights
// (kernels/layout/weights_layout.h).
inline int WeightPart(v1::WeightTarget::Kind kind) { return kind - v1::WeightTarget::GATE; }
// What v1::WeightTarget says; the kind is one that the buffer keeps.
TensorSpec WeightMatrixSpec(v1::WeightTarget::Kind kind, const BufferShape& shape);
// Names of tensors and plans: 1 to 64 letters, digits and _ - . /
absl::Status CheckObjectName(absl::string_view what, const std::string& name);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_TENSOR_SPEC_H_
