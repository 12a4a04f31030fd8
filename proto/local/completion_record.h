// How a command of a local client ended, and its way through the control page. The worker writes a
// record, the client copies it out and believes it only when it was not being written meanwhile and
// makes sense: the worker may die at any instruction.
#ifndef PERIGEE_PROTO_LOCAL_COMPLETION_RECORD_H_
#define PERIGEE_PROTO_LOCAL_COMPLETION_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/local/command_page.h"

namespace perigee {

struct LocalCompletion {
  uint64_t position = 0;
  // OK, or one line for people under its code; cut at kCompletionMessageBytes.
  absl::Status status;
  // Stable word as RankStatus.reason has it (proto/v1/error.proto), of at most 23 bytes; empty
  // where OK.
  std::string reason;
  Generation generation;
  Sequence sequence;          // 0 of a local operation
  uint32_t kind = 0;          // CommandKind; 0 where no command is meant
  LocalSlot slot;             // that it has taken: a dispatch, or a run_experts for its results
  int32_t rank = -1;          // that speaks
  absl::Duration duration;    // from the worker's taking the command to its end
  std::vector<int32_t> lost;  // ranks that the group lost, if that is why; in [0, 128)

  // Where the operation stood, as OperationError has it: -1 and 0 where there is nothing to say.
  uint32_t phase = 0;  // 1 entry, 2 exit
  int32_t awaited_rank = -1;
  int32_t token = -1;
  int32_t k = -1;
  int64_t expected = 0;
  int64_t seen = 0;
};

// From one thread at a time. Leaves out what a record cannot hold.
void WriteCompletion(CompletionRecord& record, const LocalCompletion& completion);

// From any thread. UNAVAILABLE: the record is being written, or its writer died over it;
// DATA_LOSS: it says what no record says.
absl::StatusOr<LocalCompletion> ReadCompletion(CompletionRecord& record);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_COMPLETION_RECORD_H_
