// What the ranks of a remote group ask for at one time, made into the one operation that a program
// runs on all of them, or told to them as a worker would tell a local client. Pure; not
// thread-safe.
#ifndef PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_
#define PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/remote_plans.h"
#include "client/lib/remote_wish.h"
#include "kernels/common/ids.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// Whether it concerns nobody but its rank and no worker: such an operation waits for nobody.
bool IsBookkeeping(const LocalOperation& operation);
// Does it, and says how it ended.
LocalCompletion KeepBooks(const LocalOperation& operation, RankId rank, RemotePlans& plans);

struct RemoteRound {
  // [R] how a rank's operation ends without a program; none: it takes part, or waits for the next
  // round.
  std::vector<absl::optional<LocalCompletion>> told;
  // What all ranks run; none where any rank was told something.
  absl::optional<v1::ProgramOperation> operation;
  // Of the plan that it makes, for publish the target; empty: none.
  std::string new_plan;
  // Of the making of the target that it publishes.
  uint64_t target_sequence = 0;
  // [R] how many of a rank's tokens it is about, where it reads any.
  std::vector<int32_t> token_counts;
};

// operations: [R], one of each rank, no bookkeeping. Where some but not all ask for the same local
// operation, run_experts or a step of a publication, those are refused; where ranks mean different
// operations all are told of it (DISAGREEMENT); where one cannot take part it is told why and the
// others that it has declined (DECLINED).
RemoteRound DecideRound(absl::Span<const LocalOperation> operations, int32_t tokens,
                        const RemotePlans& plans);

// Notes what has become of the round's operation, on every rank, once it has been run.
void NoteOutcome(const RemoteRound& round, absl::Span<const LocalOperation> operations,
                 absl::Span<const LocalCompletion> ranks, RemotePlans& plans);

// A failure as a completion has it.
LocalCompletion Refusal(absl::Status status, std::string reason);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_
