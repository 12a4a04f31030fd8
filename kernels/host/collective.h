// One rank's side of the sequenced operations of a buffer: who may start, what all agree on at the
// entry, when all have ended, and the record of what went wrong. The operations themselves
// (dispatch.h, combine.h, prefetch.h) move data between Enter and Exit.
#ifndef PERIGEE_KERNELS_HOST_COLLECTIVE_H_
#define PERIGEE_KERNELS_HOST_COLLECTIVE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "kernels/host/monotonic_clock.h"
#include "kernels/host/rank_barrier.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/rank/agreement.h"
#include "kernels/rank/progress.h"

namespace perigee {

struct CollectiveOptions {
  RankId rank;
  BufferId buffer;
  Generation generation;
  std::vector<ShardView> shards;  // [R]; only control words and planning headers are touched
  absl::Duration operation_timeout = absl::Seconds(10);
  absl::Duration warmup_timeout = absl::ZeroDuration();  // of the first; zero: as the others
  MonotonicClock clock = SteadyClock();
  absl::Duration wait_slice = absl::Milliseconds(100);
  absl::Duration spin = absl::ZeroDuration();
};

// Of the dispatch-output slot that operations work on (kernels/buffer_rings.h).
struct SlotCredit {
  uint32_t slot = 0;         // as in EntryRecord; 0: none
  uint64_t* word = nullptr;  // 1 where the last read of the slot has ended; others may set it
};

// Abort, RequestCancel and last_error: from any thread. The others: from one thread at a time. What
// can follow a failure: kernels/rank/progress.h.
class Collective {
 public:
  explicit Collective(CollectiveOptions options);

  // Whether `sequence` may start now; starts its deadline and forgets the last error. It must be
  // one more than the last one that entered: INVALID_ARGUMENT if it is not greater, nothing
  // changed; if it skips some, the others are told and this rank is out of step.
  absl::Status Begin(Sequence sequence, Operation operation);

  // Entry barrier of the operation begun. Orders: everything that any rank did before it (its
  // reads and writes of the previous operation, what it published for this one), before everything
  // that any rank does after it. Any error but OK means that no rank goes on, or that this rank
  // cannot. `flags`: kEntry... of this rank; a wish to cancel is added.
  absl::Status Enter(const OperationDescriptor& descriptor, uint32_t flags);

  // Of the operations that follow. Each waits at its entry, for half of its timeout, for the word,
  // and leaves with all ranks where that does not come (kDeclined). Where all go on it is cleared.
  void UseCredit(const SlotCredit& credit) { credit_ = credit; }

  // Exit barrier of the operation entered. Orders: every rank's accesses to peers' memory in this
  // operation, before whatever any rank does next with its own.
  absl::Status Exit();

  // Begin and Enter in the place of an operation that this rank refuses. OK when all ranks have
  // been told, whatever they make of it.
  absl::Status Decline(Sequence sequence);

  // Records an error that this rank found by itself inside the operation begun and returns it as a
  // status. `record` needs reason and details; identity and place are filled in here.
  absl::Status Fail(ErrorRecord record, const std::string& text) {
    return progress_.Fail(record, text);
  }

  // Starts an operation that has no sequence and waits for nobody: forgets the last error.
  // UNAVAILABLE after Abort.
  absl::Status BeginLocal(Operation operation) { return progress_.BeginLocal(operation); }
  // UNAVAILABLE after Abort, for operations that take long between barriers.
  absl::Status CheckNotAborted() { return progress_.CheckNotAborted(); }

  void Abort(int32_t lost_rank, const std::string& reason);
  void RequestCancel(bool wanted) { cancel_wanted_.store(wanted, std::memory_order_relaxed); }
  bool aborted() const { return barrier_.aborted(); }

  // Of the operation that was called last; none if it was refused or has succeeded.
  absl::optional<ErrorRecord> last_error() const { return progress_.last_error(); }
  void ForgetError() { progress_.Forget(); }

 private:
  absl::Status EnterBarrier(const OperationDescriptor& descriptor, uint32_t flags);
  void Publish(const OperationDescriptor& descriptor, uint32_t flags);
  std::vector<RankEntry> ReadEntries();
  absl::Status Wait(Phase phase);
  bool AwaitCredit() const;
  absl::Status Skipped(Operation operation);

  const CollectiveOptions options_;
  RankBarrier barrier_;
  Progress progress_;
  std::atomic<bool> cancel_wanted_ = false;
  absl::Duration deadline_;  // of the operation begun
  SlotCredit credit_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_COLLECTIVE_H_
