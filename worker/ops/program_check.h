// Whether a program makes sense on a buffer, whatever is written there: the part of the check that
// has the same outcome on every rank, so that a refusal needs no word to the others.
#ifndef PERIGEE_WORKER_OPS_PROGRAM_CHECK_H_
#define PERIGEE_WORKER_OPS_PROGRAM_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "proto/v1/program.pb.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/tensor_spec.h"

namespace perigee {

inline constexpr int kMaxProgramOperations = 1024;
// Of a program with keep_durations or time_iterations: what its end reports fits into a message.
inline constexpr int32_t kMaxKeptIterations = 10000;
inline constexpr int64_t kMaxKeptDurations = 100000;

// INVALID_PROGRAM, naming the operation by index and kind, and what is wrong with it: no or too
// many operations, a negative number of iterations, too many durations to keep, both operations and
// iterations to time, an empty or malformed name, both or none of plan and saved_plan, a layer that
// is not there, version 0, weights where none are kept, route weights wanted where none travel or
// are gathered, an output that is named twice or read as an input (before it is written, where
// produce or dispatch does).
absl::Status CheckProgram(const v1::Program& program, const BufferShape& shape);

// Whether all ranks take part, so that it has a sequence. Of ranks that send each other messages a
// copy to the next rank is so, too: each waits for what the one before it sends.
bool IsCollective(const v1::ProgramOperation& operation, Transport transport = Transport::kNvlink);
// As its field in v1.ProgramOperation: "dispatch".
const char* OperationName(const v1::ProgramOperation& operation);

// A tensor that a program writes.
struct OutputTensor {
  std::string name;
  TensorSpec spec;
  // The index of the produce or dispatch that writes it: operations after that may read it. What a
  // produce writes has as many rows as its `a` has, S at most. None: another operation writes it.
  absl::optional<int> readable_after;
};
// Of a checked program, each once.
std::vector<OutputTensor> OutputsOf(const v1::Program& program, const BufferShape& shape);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_PROGRAM_CHECK_H_
