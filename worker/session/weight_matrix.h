// A weight matrix in this rank's home blocks, and the header that says what a block holds.
#ifndef PERIGEE_WORKER_SESSION_WEIGHT_MATRIX_H_
#define PERIGEE_WORKER_SESSION_WEIGHT_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "proto/v1/worker.pb.h"
#include "worker/memory/buffer_memory.h"

namespace perigee {

// The target has been checked (weight_ledger.h).
std::byte* WeightMatrix(const BufferMemory& memory, const v1::WeightTarget& target);

// version 0: the block holds nothing. Peers look at the header before and after they read matrices:
// so it is written after the matrices are complete, and before they change.
absl::Status WriteHomeHeader(Backend& backend, const BufferMemory& memory, int32_t layer,
                             uint64_t version);

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_WEIGHT_MATRIX_H_
