// What ends a wait on a descriptor that does not become ready: a deadline, or an interrupt from
// another thread.
#ifndef PERIGEE_PROTO_LOCAL_WAIT_LIMIT_H_
#define PERIGEE_PROTO_LOCAL_WAIT_LIMIT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Ends every wait that watches it, from now on. Thread-safe.
class Interrupt {
 public:
  Interrupt();
  void Raise();
  int fd() const { return event_.get(); }

 private:
  FileDescriptor event_;
};

class WaitLimit {
 public:
  // Starts now, on the monotonic clock. `interrupt` outlives the limit; null: none.
  explicit WaitLimit(absl::Duration timeout, const Interrupt* interrupt = nullptr);

  // Blocks until `fd` has one of `events` (POLLIN, POLLOUT), an error or a hang-up, which the
  // caller's next call on it tells. DEADLINE_EXCEEDED; CANCELLED after Interrupt::Raise.
  absl::Status Wait(int fd, short events) const;
  // Blocks for `pause`, with the same two ends.
  absl::Status Pause(absl::Duration pause) const;
  absl::Duration remaining() const;  // never negative

 private:
  absl::Status Poll(int fd, short events, absl::Duration pause) const;

  const absl::Duration timeout_;
  const absl::Duration end_;  // of CLOCK_MONOTONIC
  const Interrupt* const interrupt_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_WAIT_LIMIT_H_
