// The state of a ring of slots on its rank (kernels/buffer_rings.h): which acquisition has which
// slot. Knows no memory and no device; whether a recorded last read has ended it asks.
#ifndef PERIGEE_KERNELS_RANK_SLOT_RING_H_
#define PERIGEE_KERNELS_RANK_SLOT_RING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/buffer_rings.h"

namespace perigee {

// Not thread-safe. Slots are taken in turn, whichever are free, so that all ranks that acquire and
// undo alike take the same.
class SlotRing {
 public:
  // has_passed(slot): the last read that was recorded of it has ended; true before there is one.
  SlotRing(const RingId& id, int32_t slots, std::function<bool(int32_t slot)> has_passed);

  // The next slot in turn, also where its last read goes on: the caller waits for that on the
  // device. RESOURCE_EXHAUSTED where it is not released; INVALID_ARGUMENT where there is no slot at
  // all. identity: not 0, and of no acquisition that lives.
  absl::StatusOr<RingSlot> Acquire(uint64_t identity);
  // Its last read is recorded. INVALID_ARGUMENT, as for Check, or where it is released already.
  absl::Status Release(const RingSlot& slot);
  // INVALID_ARGUMENT unless the acquisition has the slot: it is of another ring, over, or released.
  absl::Status Check(const RingSlot& slot) const;

  // What was called has not been done. In reverse order of the calls. An acquisition is undone with
  // its release, and only where it is the last one.
  void UndoAcquire(const RingSlot& slot);
  void UndoRelease(const RingSlot& slot);

  SlotState Probe(const RingSlot& slot) const;
  const RingId& id() const { return id_; }
  int32_t size() const { return static_cast<int32_t>(slots_.size()); }
  int32_t next() const { return next_; }
  std::vector<RingSlot> AllAcquired() const;
  int32_t acquired() const { return static_cast<int32_t>(AllAcquired().size()); }

 private:
  enum class Stage { kFree, kAcquired, kReleased };
  struct Slot {
    uint64_t identity = 0;  // of the last acquisition; 0: of none, or it was undone
    Stage stage = Stage::kFree;
  };

  bool IsOwn(const RingSlot& slot) const;
  absl::Status Gone(const RingSlot& slot) const;
  std::string NameOf(int32_t index) const;

  const RingId id_;
  const std::function<bool(int32_t slot)> has_passed_;
  std::vector<Slot> slots_;
  int32_t next_ = 0;
};

// A step of a schedule: acquires a slot for an object, or releases that of one.
struct RingStep {
  bool acquires = false;
  int32_t object = 0;  // each is acquired once
};
// The least number of slots with which no acquisition of the schedule is refused, the slots of
// objects that it never releases included.
int32_t RingDepthNeeded(absl::Span<const RingStep> schedule);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_SLOT_RING_H_
