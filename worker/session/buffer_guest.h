// A local client's attachment as the buffer that it uses sees it.
#ifndef PERIGEE_WORKER_SESSION_BUFFER_GUEST_H_
#define PERIGEE_WORKER_SESSION_BUFFER_GUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace perigee {

class BufferGuest {
 public:
  virtual ~BufferGuest() = default;
  // The buffer was aborted: an operation under way ends, and nothing more of it can be used.
  // `lost_ranks` may be empty. Never blocks and never calls back; from any thread.
  virtual void Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks) = 0;
  // Blocks until the guest uses nothing of the buffer any more, which is soon after an Abort.
  virtual void AwaitEnd() = 0;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_BUFFER_GUEST_H_
