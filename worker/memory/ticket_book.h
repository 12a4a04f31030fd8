// The one-time tickets against which this rank's memory descriptors are handed out. Logic only: the
// caller brings the time and the lock.
#ifndef PERIGEE_WORKER_MEMORY_TICKET_BOOK_H_
#define PERIGEE_WORKER_MEMORY_TICKET_BOOK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/local/descriptor_message.h"

namespace perigee {

// Whose descriptors a ticket is for.
struct ExportScope {
  uint64_t group_hash = 0;  // HashGroupName
  Generation generation;
  BufferId buffer;
  RankId rank;  // the exporter's, with its incarnation
  uint64_t incarnation = 0;
};

struct PeerTicket {
  RankId rank;  // who may present it, with its incarnation
  uint64_t incarnation = 0;
  Ticket ticket{};
};

class TicketBook {
 public:
  void Issue(const ExportScope& scope, const std::vector<PeerTicket>& tickets,
             absl::Duration expires_at);
  void Revoke(BufferId buffer, Generation generation);

  // Spends the ticket presented, whatever comes of it, and says whether it is good for all that the
  // request names. The reason is for this worker's own log: PERMISSION_DENIED (unknown, or another
  // requester's), FAILED_PRECONDITION (spent, another ABI, generation, buffer or incarnation),
  // DEADLINE_EXCEEDED (expired).
  absl::Status Redeem(const DescriptorRequest& request, absl::Duration now);

 private:
  struct Entry {
    ExportScope scope;
    PeerTicket peer;
    absl::Duration expires_at;
    bool spent = false;
  };
  std::vector<Entry> entries_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_MEMORY_TICKET_BOOK_H_
