// One rank's side of the sequenced operations of a buffer whose ranks tell each other what they
// mean by messages: at the entry of an operation each sends its words to all. What is decided of
// them is what ranks with shared words decide (kernels/rank/agreement.h).
#ifndef PERIGEE_KERNELS_STAGED_STAGED_COLLECTIVE_H_
#define PERIGEE_KERNELS_STAGED_STAGED_COLLECTIVE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/weights_layout.h"
#include "kernels/link_traffic.h"
#include "kernels/staged/peer_exchange.h"
#include "kernels/staged/staged_device.h"

namespace perigee {

// What a rank sends to every rank. `record` and `statement` are filled in by Enter.
struct RankWords {
  EntryRecord record;
  Statement statement;
  PlanningHeader planning;     // of a dispatch that plans
  HomeHeader home;             // of a prefetch: what the home block holds
  uint64_t sends_weights = 0;  // of a dispatch: 1 where route weights travel with the rows
};
static_assert(sizeof(RankWords) == 144);

// RequestCancel: from any thread. The others: from one thread at a time.
class StagedCollective {
 public:
  // Both outlive the result but for the exchange, which is its own.
  static absl::StatusOr<std::unique_ptr<StagedCollective>> Create(
      StagedDevice& device, std::unique_ptr<PeerExchange> exchange);

  // As Progress::Begin; starts the operation's deadline. Where it skips sequences the others are
  // told.
  absl::Status Begin(Sequence sequence, Operation operation);
  // As Progress::BeginLocal, for transfers outside an operation that ranks enter.
  absl::Status BeginLocal(Operation operation);
  // Waits for every rank's words. Any error but OK means that no rank goes on, or that this rank
  // cannot.
  absl::Status Enter(const OperationDescriptor& descriptor, uint32_t flags,
                     const RankWords& said = {});
  // Whether ranks may wait in the operation begun for what this one sends.
  bool inside() const { return inside_; }
  // [R] of the operation entered.
  const std::vector<RankWords>& words() const { return words_; }
  // Inside the operation entered: empty transfers are left out.
  absl::Status Transfer(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming);
  // Words again, of what has become of a home block since.
  absl::Status Renew(const HomeHeader& home);
  // Begin and Enter in the place of an operation that this rank refuses. OK when all ranks have
  // been told, whatever they make of it.
  absl::Status Decline(Sequence sequence);
  // Of all that this rank has sent, words included.
  std::shared_ptr<const LinkTraffic> traffic() const { return traffic_; }
  void RequestCancel(bool wanted) { cancel_wanted_.store(wanted, std::memory_order_relaxed); }

 private:
  StagedCollective(StagedDevice& device, std::unique_ptr<PeerExchange> exchange,
                   std::unique_ptr<Memory> memory);

  absl::Status EnterAlone(const OperationDescriptor& descriptor, uint32_t flags,
                          const RankWords& said);
  absl::Status SendWords();
  absl::Status Send(absl::Span<const Outgoing> outgoing, absl::Span<const Incoming> incoming);
  absl::Status Failed(const absl::Status& status);
  absl::Status MissingAtEntry();
  std::byte* PlaceOf(int32_t rank) const { return memory_->data() + rank * sizeof(RankWords); }
  absl::Status ReadWords();

  StagedDevice& device_;
  const std::unique_ptr<PeerExchange> exchange_;
  const std::unique_ptr<Memory> memory_;  // [R + 1] words: what comes, and last what goes
  std::vector<RankWords> words_;          // [R]
  const std::shared_ptr<LinkTraffic> traffic_;
  std::atomic<bool> cancel_wanted_ = false;
  absl::Time deadline_;
  bool inside_ = false;
  uint64_t entered_ = 0;  // sequence of the last operation whose words have all come
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_STAGED_COLLECTIVE_H_
