// The client's end of a control page: submits commands without a system call while the worker is
// awake, and reads how they ended.
//
// The worker may die at any instruction and nothing in the page need be whole then: what was not
// completed is waited for within the caller's timeout, or until the injected check says that the
// worker has gone.
#ifndef PERIGEE_PROTO_LOCAL_COMMAND_PRODUCER_H_
#define PERIGEE_PROTO_LOCAL_COMMAND_PRODUCER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/local/command_page.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"

namespace perigee {

struct CommandProducerOptions {
  // How long a wait looks before it sleeps.
  absl::Duration spin = kCommandSpin;
  // The longest single sleep; check_worker is called between two.
  absl::Duration wait_slice = absl::Milliseconds(20);
  // An error when the worker has gone: it ends waits and is what they return. Empty: none.
  std::function<absl::Status()> check_worker;
};

// From one thread at a time.
class CommandProducer {
 public:
  // Nobody has submitted anything through the page yet; page and clock outlive the producer.
  CommandProducer(CommandPage& page, const Clock& clock, CommandProducerOptions options);

  // The position of the submitted command. Counts the sequence of collective operations, from the
  // page's first_sequence. Never blocks. RESOURCE_EXHAUSTED: kCommandSlots commands are under way;
  // else, the attachment is over and this is why. Refused then, and nothing was submitted.
  // awaits_inputs: the worker begins it when the page's ready word of this position is there.
  absl::StatusOr<uint64_t> Submit(const LocalOperation& operation, bool awaits_inputs = false) {
    return SubmitProgram(absl::MakeConstSpan(&operation, 1), awaits_inputs);
  }
  // The same of several at once: the worker finds all of them in the page, or none, and is woken
  // once. The position of the first; awaits_inputs is about that one. RESOURCE_EXHAUSTED: fewer
  // places are free; INVALID_ARGUMENT: there is none, or more than kCommandSlots.
  absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations,
                                         bool awaits_inputs = false);

  // Whether that many would be taken now, by the same errors. Room does not get less.
  absl::Status CheckRoomFor(size_t count);

  // How the command at `position` ended; none while it has not. An error is about the way there,
  // not about the command: OUT_OF_RANGE, nothing was submitted there yet or its record has been
  // used again; DATA_LOSS or UNAVAILABLE, the page is damaged; else, the attachment is over and
  // the command will not end.
  absl::StatusOr<absl::optional<LocalCompletion>> Poll(uint64_t position);
  // The same, waiting for it. DEADLINE_EXCEEDED, with the command still under way.
  absl::StatusOr<LocalCompletion> Wait(uint64_t position, absl::Duration timeout);
  // Why the worker has ended the attachment, with all that it told; none while it has not, or where
  // the page is damaged.
  absl::optional<LocalCompletion> End();
  // Waits until fewer than kCommandSlots commands are under way.
  absl::Status WaitForRoom(absl::Duration timeout);

  uint64_t submitted() const { return submitted_; }
  Sequence next_sequence() const { return next_sequence_; }

 private:
  // Into its place in the page, where the worker does not look yet.
  void Write(uint64_t position, const LocalOperation& operation, bool awaits_inputs);
  // Commands completed. DATA_LOSS: a count that cannot be.
  absl::StatusOr<uint64_t> Completed();
  // Not OK once the worker has ended the attachment.
  absl::Status Ended();
  // Until `count` commands have completed.
  absl::Status WaitForCount(uint64_t count, absl::Duration timeout);
  void Sleep(uint64_t count, absl::Duration longest);

  CommandPage& page_;
  const Clock& clock_;
  const CommandProducerOptions options_;
  const Generation generation_;
  Sequence next_sequence_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;  // as last seen
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_COMMAND_PRODUCER_H_
