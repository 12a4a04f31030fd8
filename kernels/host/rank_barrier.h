// The barrier of a group: one rank's side, over the control pages in the ranks' shards.
//
// A rank arrives at a position by storing it into its words in every rank's page, and waits for all
// positions in its own page. Whoever completes a page rings that page's doorbell, so a waiter
// sleeps on a futex and is woken about once. No lock is shared between processes: a rank that is
// killed at any point leaves nothing locked.
//
// Memory order: the store of a position is a release and its load an acquire, so all that a rank
// wrote before it arrived is visible to every rank that has waited for it.
#ifndef PERIGEE_KERNELS_HOST_RANK_BARRIER_H_
#define PERIGEE_KERNELS_HOST_RANK_BARRIER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "kernels/host/monotonic_clock.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/operation.h"

namespace perigee {

// How a wait ended: kNone (all ranks are there), kAborted, kDeadline or kOutOfStep. The last two
// name the first rank that is missing, or at a position that no rank can be at, and what it was.
struct WaitOutcome {
  AbortReason reason = AbortReason::kNone;
  int32_t rank = -1;
  uint64_t seen = 0;
};

struct RankBarrierOptions {
  RankId rank;
  std::vector<ControlPage*> pages;  // [R], R <= kControlPeers; outlive the barrier
  MonotonicClock clock = SteadyClock();
  absl::Duration wait_slice = absl::Milliseconds(100);
  absl::Duration spin = absl::ZeroDuration();
};

// Arrive and Wait: from one thread at a time. Abort: from any thread.
class RankBarrier {
 public:
  explicit RankBarrier(RankBarrierOptions options);

  // Tells every rank that this one has reached `position`, which must be greater than before.
  void Arrive(uint64_t position);
  // Blocks until every rank has reached `position`, the barrier is aborted, or clock() passes
  // `deadline`. Garbage in the page makes it end with kOutOfStep or kDeadline, nothing worse.
  WaitOutcome Wait(uint64_t position, absl::Duration deadline);

  // Ends the present wait and all later ones.
  void Abort();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  absl::Duration now() const { return options_.clock(); }

 private:
  WaitOutcome Look(uint64_t position) const;
  bool ShouldRing(int32_t target, uint64_t position) const;
  void Ring(ControlPage& page) const;

  const RankBarrierOptions options_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_RANK_BARRIER_H_
