// How the two sides of a control page wake each other. Each side has a count that only grows, a
// doorbell that the other sleeps on, and a word that says that it sleeps itself.
//
// seq_cst on all of them: a side that goes to sleep says so, reads the doorbell, then looks at the
// count; the other stores its count, then looks whether anybody sleeps. At least one of the two
// sees the other. A count is also the release and acquire of what was written before it.
#ifndef PERIGEE_PROTO_LOCAL_DOORBELL_H_
#define PERIGEE_PROTO_LOCAL_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "kernels/common/futex.h"
#include "proto/local/command_page.h"

namespace perigee {

inline uint64_t LoadCount(CommandPageWords& side) {
  return std::atomic_ref<uint64_t>(side.count).load(std::memory_order_seq_cst);
}
inline void StoreCount(CommandPageWords& side, uint64_t count) {
  std::atomic_ref<uint64_t>(side.count).store(count, std::memory_order_seq_cst);
}

// Wakes who sleeps on the doorbell of `side`.
inline void Ring(CommandPageWords& side) {
  std::atomic_ref<uint32_t>(side.doorbell).fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(side.doorbell);
}
// `own` has a new count; rings where `other` sleeps. A system call only then.
inline void RingIfAsleep(CommandPageWords& own, CommandPageWords& other) {
  if (std::atomic_ref<uint32_t>(other.asleep).load(std::memory_order_seq_cst) != 0) Ring(own);
}

// One sleep of `own` on the doorbell of `other`. Between construction and Wait the caller looks
// once more for what it waits for.
class DoorbellSleep {
 public:
  DoorbellSleep(CommandPageWords& own, CommandPageWords& other)
      : asleep_(own.asleep), doorbell_(other.doorbell) {
    asleep_.store(1, std::memory_order_seq_cst);
    seen_ = std::atomic_ref<uint32_t>(doorbell_).load(std::memory_order_seq_cst);
  }
  ~DoorbellSleep() { asleep_.store(0, std::memory_order_seq_cst); }
  DoorbellSleep(const DoorbellSleep&) = delete;
  DoorbellSleep& operator=(const DoorbellSleep&) = delete;

  // Until the doorbell is rung or `longest` has passed; may return for no reason.
  void Wait(absl::Duration longest) {
    FutexWait(doorbell_, seen_, absl::ToChronoNanoseconds(longest));
  }

 private:
  std::atomic_ref<uint32_t> asleep_;
  uint32_t& doorbell_;
  uint32_t seen_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_DOORBELL_H_
