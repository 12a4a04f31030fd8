// One matrix of this rank's gradients, for clients that write or read it.
#ifndef PERIGEE_WORKER_SESSION_GRADIENT_MATRIX_H_
#define PERIGEE_WORKER_SESSION_GRADIENT_MATRIX_H_

#include <cstddef>

#include "absl/status/status.h"
#include "proto/v1/worker.pb.h"
#include "worker/memory/buffer_memory.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/tensor_spec.h"

namespace perigee {

// INVALID_ARGUMENT unless the buffer keeps gradients, the matrix is known, and the layer is one of
// the buffer's, or 0 for slots.
absl::Status CheckGradientTarget(const v1::GradientTarget& target, const BufferShape& shape);

// Of a checked target: [E/R, ..] float32, or [B, ..] for slots; and where it is.
TensorSpec GradientMatrixSpec(const v1::GradientTarget& target, const BufferShape& shape);
std::byte* GradientMatrix(const BufferMemory& memory, const v1::GradientTarget& target);

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_GRADIENT_MATRIX_H_
