// The worker's end of a control page: takes commands in order and writes how each ended.
//
// Everything in the page is untrusted. An entry is copied out before anything looks at it, counts
// are kept here and never read back, and no value from the page is used as an index or an address.
// Whatever the client does to the page, calls return within their timeouts; at worst a lost wake-up
// costs a wait one wait_slice.
#ifndef PERIGEE_PROTO_LOCAL_COMMAND_CONSUMER_H_
#define PERIGEE_PROTO_LOCAL_COMMAND_CONSUMER_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/local/command_page.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"
#include "proto/support/publication_token.h"

namespace perigee {

struct CommandConsumerOptions {
  // How long Next looks before it sleeps, counted from the last command's completion.
  absl::Duration spin = kCommandSpin;
  // The longest single sleep.
  absl::Duration wait_slice = absl::Milliseconds(100);
};

// From one thread at a time, but for Interrupt.
class CommandConsumer {
 public:
  // The page has just been formatted; page and clock outlive the consumer.
  CommandConsumer(CommandPage& page, const Clock& clock, const CommandConsumerOptions& options);

  // A copy of the next entry, undecoded; none if there is none yet. INVALID_ARGUMENT: the client
  // has broken the ring (its count ran backwards or too far, or an entry is not where it says that
  // it is); from then on always, and the attachment is to end.
  absl::StatusOr<absl::optional<CommandEntry>> TryNext();
  // The same, waiting for one. DEADLINE_EXCEEDED: none came; CANCELLED: after Interrupt.
  absl::StatusOr<CommandEntry> Next(absl::Duration timeout);

  // A copy of the publication token of an entry that was taken and has not been completed; none
  // where the entry has none.
  absl::optional<PublicationTokenBytes> TokenOf(const CommandEntry& entry) const;

  // Whether the client's device has said that the inputs of an entry that was taken are there, or
  // nobody is to wait for that.
  bool InputsReady(const CommandEntry& entry) const;

  // Whether the client has said that the last read of a slot is over, which was released so; once
  // of a graph. Not of SlotRead::kOver. The slot is one that there is.
  bool TakeRead(const LocalReleaseSlot& release);

  // Publishes how a command ended that was taken, in the order of taking; sets the position.
  void Complete(LocalCompletion completion);
  // Publishes why the attachment is over, an error. Nothing else is called afterwards.
  void End(const LocalCompletion& why);

  // Ends the present wait and all later ones. From any thread.
  void Interrupt();
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

  uint64_t taken() const { return taken_; }
  uint64_t completed() const { return completed_; }

 private:
  void Sleep(absl::Duration longest);

  CommandPage& page_;
  const Clock& clock_;
  const CommandConsumerOptions options_;
  std::atomic<bool> interrupted_ = false;
  uint64_t taken_ = 0;
  uint64_t completed_ = 0;
  absl::Status broken_;
  absl::Duration last_active_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_COMMAND_CONSUMER_H_
