// Commands of one rank under way and how they ended, as a command ring keeps them
// (proto/local/command_page.h), in this process' own memory. Logic only: the caller brings the
// lock.
#ifndef PERIGEE_CLIENT_LIB_COMMAND_QUEUE_H_
#define PERIGEE_CLIENT_LIB_COMMAND_QUEUE_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/local/command_page.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"

namespace perigee {

class CommandQueue {
 public:
  // All of them or none: the position of the first. Errors: CheckRoom; else it has ended.
  absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations);
  // The first command under way, or null.
  const LocalOperation* head() const;
  // How the head ended; position and kind are filled in here. There is a head.
  void Complete(LocalCompletion completion);
  // Nothing is taken or completed any more; only the first reason counts, and it is not OK.
  void End(LocalCompletion why);
  const absl::optional<LocalCompletion>& end() const { return end_; }

  // How the command at `position` ended; none while it has not. OUT_OF_RANGE: nothing was submitted
  // there, or kCommandSlots have completed since; else the queue has ended, and the command will
  // not.
  absl::StatusOr<absl::optional<LocalCompletion>> Find(uint64_t position) const;

 private:
  std::array<LocalOperation, kCommandSlots> operations_;
  std::array<LocalCompletion, kCommandSlots> completions_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  absl::optional<LocalCompletion> end_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_COMMAND_QUEUE_H_
