// Which tensors a program writes, and whether it may: an output is memory of its own.
#ifndef PERIGEE_SERVER_GROUPS_PROGRAM_OUTPUTS_H_
#define PERIGEE_SERVER_GROUPS_PROGRAM_OUTPUTS_H_

#include "absl/status/status.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// Of a program whose operations are well formed one by one. INVALID_ARGUMENT, naming the operation,
// the field and the tensor: one that two fields write, or that an operation reads which does not
// come after the one that writes it. What a combine writes is read by none.
absl::Status CheckProgramOutputs(const v1::Program& program);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_PROGRAM_OUTPUTS_H_
