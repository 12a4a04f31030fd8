#include "kernels/rank/slot_ring.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

const char* KindName(RingKind kind) {
  return kind == RingKind::kDispatchOutput ? "dispatch-output" : "expert-output";
}

std::string DescribeRing(const RingId& ring) {
  return absl::StrCat("the ", KindName(ring.kind), " ring of rank ", ring.rank.value, ", buffer ",
                      ring.buffer.value, ", generation ", ring.generation.value);
}

}  // namespace

SlotRing::SlotRing(const RingId& id, int32_t slots, std::function<bool(int32_t slot)> has_passed)
    : id_(id), has_passed_(std::move(has_passed)), slots_(slots) {}

std::string SlotRing::NameOf(int32_t index) const {
  return absl::StrCat(KindName(id_.kind), " slot ", index);
}

absl::StatusOr<RingSlot> SlotRing::Acquire(uint64_t identity) {
  if (slots_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the buffer has no ", KindName(id_.kind),
                                                   " slots, expected one that was made with some"));
  }
  Slot& slot = slots_[next_];
  if (slot.stage == Stage::kAcquired) {
    return absl::ResourceExhaustedError(
        absl::StrCat(NameOf(next_), " is next and not released: identity ", slot.identity,
                     " has it. The buffer has ", size(), " slots, what is called needs ",
                     size() + 1, " or more, or a release before"));
  }
  slot = {identity, Stage::kAcquired};
  const RingSlot taken{id_, next_, identity};
  next_ = (next_ + 1) % size();
  return taken;
}

bool SlotRing::IsOwn(const RingSlot& slot) const {
  return slot.ring == id_ && slot.index >= 0 && slot.index < size();
}

absl::Status SlotRing::Gone(const RingSlot& slot) const {
  const Slot& now = slots_[slot.index];
  const std::string holder = now.stage == Stage::kAcquired
                                 ? absl::StrCat("identity ", now.identity, " has it")
                                 : std::string("nobody has it");
  return absl::InvalidArgumentError(absl::StrCat(NameOf(slot.index), " carries identity ",
                                                 slot.identity, ", which is over: ", holder));
}

absl::Status SlotRing::Check(const RingSlot& slot) const {
  if (!IsOwn(slot)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot.index, " is of ", DescribeRing(slot.ring),
                     ", expected one of the ", size(), " of ", DescribeRing(id_)));
  }
  const Slot& now = slots_[slot.index];
  if (now.identity != slot.identity || now.stage == Stage::kFree) return Gone(slot);
  if (now.stage == Stage::kAcquired) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(slot.index), " of identity ", slot.identity,
                                                 " is released already, expected once and last"));
}

absl::Status SlotRing::Release(const RingSlot& slot) {
  if (absl::Status status = Check(slot); !status.ok()) return status;
  slots_[slot.index].stage = Stage::kReleased;
  return absl::OkStatus();
}

void SlotRing::UndoAcquire(const RingSlot& slot) {
  if (!IsOwn(slot) || (slot.index + 1) % size() != next_) return;
  Slot& now = slots_[slot.index];
  // One that came after it has been undone before.
  if (now.identity != slot.identity && now.identity != 0) return;
  now = Slot();
  next_ = slot.index;
}

void SlotRing::UndoRelease(const RingSlot& slot) {
  if (!IsOwn(slot)) return;
  Slot& now = slots_[slot.index];
  const bool still = now.identity == slot.identity && now.stage == Stage::kReleased;
  if (still || now.identity == 0) now = {slot.identity, Stage::kAcquired};
}

SlotState SlotRing::Probe(const RingSlot& slot) const {
  if (!IsOwn(slot)) return SlotState::kForeign;
  const Slot& now = slots_[slot.index];
  if (now.identity != slot.identity || now.stage == Stage::kFree) return SlotState::kOver;
  if (now.stage == Stage::kAcquired) return SlotState::kAcquired;
  return has_passed_(slot.index) ? SlotState::kFree : SlotState::kReleased;
}

std::vector<RingSlot> SlotRing::AllAcquired() const {
  std::vector<RingSlot> acquired;
  for (int32_t index = 0; index < size(); ++index) {
    const Slot& slot = slots_[index];
    if (slot.stage == Stage::kAcquired) acquired.push_back({id_, index, slot.identity});
  }
  return acquired;
}

int32_t RingDepthNeeded(absl::Span<const RingStep> schedule) {
  struct Held {
    int32_t object;
    bool released;
  };
  std::deque<Held> since_oldest;  // acquired, from the oldest that is not released
  size_t needed = 0;
  for (const RingStep& step : schedule) {
    if (step.acquires) {
      since_oldest.push_back({step.object, false});
      needed = std::max(needed, since_oldest.size());
      continue;
    }
    for (Held& held : since_oldest) held.released |= held.object == step.object;
    while (!since_oldest.empty() && since_oldest.front().released) since_oldest.pop_front();
  }
  return static_cast<int32_t>(needed);
}

}  // namespace perigee
