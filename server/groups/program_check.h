// What of a program can be refused before any worker hears of it.
#ifndef PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_
#define PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// INVALID_ARGUMENT naming the operation by index and kind, the field, and what was expected. A plan
// name that no operation of the program makes passes: it may have been saved by an earlier one,
// which the workers know; so do operations that share something and do not wait for each other, and
// what rings of output slots demand (worker/ops/ring_check.h).
// ranks: R of the buffer's group.
absl::Status CheckProgram(const v1::Program& program, const v1::BufferShape& shape, int32_t ranks);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_
