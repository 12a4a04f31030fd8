// Whether a program can use output slots as it does: what has the same outcome on every rank.
#ifndef PERIGEE_WORKER_OPS_RING_CHECK_H_
#define PERIGEE_WORKER_OPS_RING_CHECK_H_

#include "absl/status/status.h"
#include "proto/v1/program.pb.h"
#include "worker/memory/buffer_shape.h"

namespace perigee {

// INVALID_PROGRAM, naming the operation by index: a slot of a buffer that has none, one that is
// named while another operation has its name or while none has, one that nobody releases in the
// same iteration, rows kept for backward that nobody says to copy, route weights gathered from an
// expert-output slot; or more slots wanted at a time than the buffer has, naming how many.
absl::Status CheckRings(const v1::Program& program, const BufferShape& shape);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_RING_CHECK_H_
