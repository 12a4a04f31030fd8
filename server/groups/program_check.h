// What of a program can be refused before any worker hears of it.
#ifndef PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_
#define PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_

#include "absl/status/status.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// INVALID_ARGUMENT naming the operation by index and kind, and what was expected. A plan name that
// no operation of the program makes passes: it may have been saved by an earlier one, which the
// workers know.
absl::Status CheckProgram(const v1::Program& program, const v1::BufferShape& shape);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_PROGRAM_CHECK_H_
