#include "kernels/host/rank_barrier.h"

#include <algorithm>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/futex.h"

namespace perigee {
namespace {

// seq_cst on both sides: of two ranks that arrive at the same time at least one sees both arrivals
// (and rings), and an owner that looks after its own arrival either sees the last one or is rung.
uint64_t LoadPosition(ControlPage& page, size_t rank) {
  return std::atomic_ref<uint64_t>(page.peers[rank].arrival).load(std::memory_order_seq_cst);
}

void StorePosition(ControlPage& page, size_t rank, uint64_t position) {
  std::atomic_ref<uint64_t>(page.peers[rank].arrival).store(position, std::memory_order_seq_cst);
}

// The farthest that a rank can be while another waits for `position`: at the entry of the next
// operation, which nobody passes without the waiter.
uint64_t FarthestPosition(uint64_t position) {
  return BarrierPosition(PositionSequence(position) + 1, Phase::kEntry);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

RankBarrier::RankBarrier(RankBarrierOptions options) : options_(std::move(options)) {
  const size_t ranks = options_.pages.size();
  PERIGEE_CHECK(ranks >= 1 && ranks <= static_cast<size_t>(kControlPeers));
  PERIGEE_CHECK(options_.rank.value >= 0 && static_cast<size_t>(options_.rank.value) < ranks);
}

void RankBarrier::Arrive(uint64_t position) {
  for (size_t target = 0; target < options_.pages.size(); ++target) {
    ControlPage& page = *options_.pages[target];
    StorePosition(page, options_.rank.value, position);
    if (ShouldRing(static_cast<int32_t>(target), position)) Ring(page);
  }
}

// Whether `target`, if it waits, has something new to see: all whom it waits for, or a rank that
// has gone where it cannot be.
bool RankBarrier::ShouldRing(int32_t target, uint64_t position) const {
  if (target == options_.rank.value) return false;
  ControlPage& page = *options_.pages[target];
  const uint64_t awaited = LoadPosition(page, target);
  if (awaited > position) return false;
  if (position > FarthestPosition(awaited)) return true;
  for (size_t rank = 0; rank < options_.pages.size(); ++rank) {
    if (LoadPosition(page, rank) < awaited) return false;
  }
  return true;
}

void RankBarrier::Ring(ControlPage& page) const {
  std::atomic_ref<uint32_t>(page.doorbell).fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(page.doorbell);
}

WaitOutcome RankBarrier::Look(uint64_t position) const {
  ControlPage& own = *options_.pages[options_.rank.value];
  WaitOutcome outcome;
  for (size_t rank = 0; rank < options_.pages.size(); ++rank) {
    const uint64_t seen = LoadPosition(own, rank);
    if (seen > FarthestPosition(position)) {
      return {AbortReason::kOutOfStep, static_cast<int32_t>(rank), seen};
    }
    if (seen < position && outcome.reason == AbortReason::kNone) {
      outcome = {AbortReason::kDeadline, static_cast<int32_t>(rank), seen};
    }
  }
  return outcome;
}

WaitOutcome RankBarrier::Wait(uint64_t position, absl::Duration deadline) {
  ControlPage& own = *options_.pages[options_.rank.value];
  const absl::Duration spin_end = now() + options_.spin;
  while (true) {
    // Before looking: an arrival or an abort after the look has changed the doorbell since, and the
    // futex does not sleep.
    const uint32_t doorbell =
        std::atomic_ref<uint32_t>(own.doorbell).load(std::memory_order_seq_cst);
    if (aborted()) return {AbortReason::kAborted, -1, 0};
    const WaitOutcome outcome = Look(position);
    // kDeadline stands here for "a rank is missing, and will have been at the deadline".
    if (outcome.reason != AbortReason::kDeadline) return outcome;
    const absl::Duration present = now();
    if (present >= deadline) return outcome;
    if (present < spin_end) {
      Pause();
      continue;
    }
    FutexWait(own.doorbell, doorbell,
              absl::ToChronoNanoseconds(std::min(deadline - present, options_.wait_slice)));
  }
}

void RankBarrier::Abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  Ring(*options_.pages[options_.rank.value]);
}

}  // namespace perigee
