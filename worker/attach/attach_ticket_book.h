// The one-time tickets with which local clients attach to this worker. Logic only: the caller
// brings the time and the lock.
#ifndef PERIGEE_WORKER_ATTACH_ATTACH_TICKET_BOOK_H_
#define PERIGEE_WORKER_ATTACH_ATTACH_TICKET_BOOK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "proto/local/attach_message.h"

namespace perigee {

// What a ticket is for.
struct AttachScope {
  uint64_t group_hash = 0;  // HashGroupName
  Generation generation;
  BufferId buffer;
  RankId rank;
  uint64_t incarnation = 0;  // this worker's
};

class AttachTicketBook {
 public:
  void Issue(uint64_t attachment, const AttachScope& scope, const Ticket& ticket,
             absl::Duration expires_at);
  // It is unknown from now on.
  void Revoke(uint64_t attachment);

  struct Redeemed {
    absl::Status status;
    absl::optional<uint64_t> attachment;  // whose ticket was spent just now, for good or for bad
  };
  // Spends the ticket presented, whatever comes of it, and says whether it is good for all that the
  // request names. The reason is for this worker's own log: PERMISSION_DENIED (unknown),
  // FAILED_PRECONDITION (spent, another ABI, page version, generation, buffer, rank or
  // incarnation), DEADLINE_EXCEEDED (expired).
  Redeemed Redeem(const AttachRequest& request, absl::Duration now);

  // Those whose unused ticket has expired by `now`; each is told once.
  std::vector<uint64_t> TakeExpired(absl::Duration now);
  // Of the unused ticket that expires first.
  absl::Duration NextExpiry() const;

 private:
  struct Entry {
    uint64_t attachment = 0;
    AttachScope scope;
    Ticket ticket{};
    absl::Duration expires_at;
    bool spent = false;
  };
  std::vector<Entry> entries_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_ATTACH_TICKET_BOOK_H_
