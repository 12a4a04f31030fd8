// What LocalExecutor does with output slots (docs/rings.md).
#include <algorithm>
#include <utility>

#include "kernels/layout/rings.h"
#include "worker/attach/local_executor.h"
#include "worker/ops/failure_reason.h"

namespace perigee {

static_assert(kMaxRingSlots <= static_cast<int32_t>(kReplayedWords));

RingSlot LocalExecutor::SlotOf(RingKind ring, const LocalSlot& slot) const {
  return {
      {ring, site_.objects.buffer(), group_.generation, group_.rank}, slot.index, slot.identity};
}

Failure LocalExecutor::OfSlot(RingKind ring, Failure failure) const {
  absl::Status& status = failure.status;
  if (status.ok() || failure.record || ReasonOf(status) != kReasonInternal) return failure;
  const bool is_dispatch = ring == RingKind::kDispatchOutput;
  const int32_t slots =
      is_dispatch ? site_.shape.dispatch_output_slots : site_.shape.expert_output_slots;
  if (absl::IsResourceExhausted(status)) {
    status = WithReason(status, kReasonSlotsInUse);
  } else if (absl::IsUnimplemented(status)) {  // over a transport that has none
    status = WithReason(status, kReasonInvalidProgram);
  } else if (absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) {
    status = WithReason(status, slots == 0 ? kReasonInvalidProgram : kReasonStaleObject);
  }
  return failure;
}

RankOperations::SlotTaken LocalExecutor::DispatchIntoSlot(Sequence sequence,
                                                          const DispatchInput& input, PlanPtr saved,
                                                          int32_t wanted) {
  RankOperations::SlotTaken taken =
      operations_.DispatchIntoSlot(sequence, input, std::move(saved), wanted, arena_.plan);
  begun_.back().takes = taken.slot;
  taken.failure = OfSlot(RingKind::kDispatchOutput, std::move(taken.failure));
  return taken;
}

Failure LocalExecutor::RunExpertsOfSlot(const LocalRunExperts& operation, const PlanPtr& plan) {
  RankOperations::SlotTaken taken = operations_.RunExpertsOfSlot(
      SlotOf(RingKind::kDispatchOutput, *operation.slot), plan, operation.layer,
      operation.weights_version, operation.route_weights, operation.output_slot);
  begun_.back().takes = taken.slot;
  return OfSlot(operation.output_slot ? RingKind::kExpertOutput : RingKind::kDispatchOutput,
                std::move(taken.failure));
}

Failure LocalExecutor::CombineOfSlot(const LocalCombine& operation, Sequence sequence,
                                     const PlanPtr& plan) {
  return OfSlot(
      RingKind::kExpertOutput,
      operations_.CombineOfSlot(sequence, plan, SlotOf(RingKind::kExpertOutput, *operation.slot),
                                {arena_.output, nullptr}));
}

Failure LocalExecutor::Operate(const LocalReleaseSlot& operation, Sequence) {
  const RingKind ring = operation.ring == LocalRing::kExpertOutput ? RingKind::kExpertOutput
                                                                   : RingKind::kDispatchOutput;
  const RingSlot slot = SlotOf(ring, operation.slot);
  begun_.back().releases = slot;
  if (operation.read == SlotRead::kOver) {
    begun_.back().in_order = true;
    return OfSlot(ring, operations_.ReleaseSlot(slot));
  }
  RankOperations::SlotWord released = operations_.ReleaseSlotByWord(slot);
  if (!released.word) return OfSlot(ring, std::move(released.failure));
  unread_.push_back({slot, operation, *released.word});
  return Failure();
}

bool LocalExecutor::IsBeingTaken(const RingSlot& slot) const {
  return std::any_of(begun_.begin(), begun_.end(),
                     [&](const Begun& begun) { return begun.launched && begun.takes == slot; });
}

// Whoever has the slot now launches its graph once the dispatch is told to have ended, and whatever
// had it before was over when the dispatch took it: a mark that is here between the two is left
// over from a slot that was released in another way than by its graph. Of one that has failed
// nothing is dropped: it may not have taken the slot yet, whose mark is then still waited for.
void LocalExecutor::DropLeftMark(const Begun& begun) {
  const RingSlot& slot = begun.takes;
  if (take_read_ == nullptr || slot.identity == 0 || !begun.failure.status.ok()) return;
  if (slot.ring.kind != RingKind::kDispatchOutput) return;
  (void)take_read_({{slot.index, slot.identity}, LocalRing::kDispatchOutput, SlotRead::kByGraph});
}

// A mark that the dispatch would clear is not passed before its end; and one slot may be released
// twice here, for an acquisition and the next one.
void LocalExecutor::PassReads() {
  if (take_read_ == nullptr) return;
  const auto passes = [this](const Unread& unread) {
    if (IsBeingTaken(unread.slot)) return false;
    if (!reads_over_ && !take_read_(unread.release)) return false;
    unread.word.Pass();
    return true;
  };
  unread_.erase(std::remove_if(unread_.begin(), unread_.end(), passes), unread_.end());
}

// The data path has undone those in its order, and with a slot that was not taken its release.
void LocalExecutor::UndoReleases(size_t first_failed) {
  const auto is_lost = [&](const RingSlot& slot) {
    return std::any_of(begun_.begin() + first_failed, begun_.end(),
                       [&](const Begun& begun) { return begun.launched && begun.takes == slot; });
  };
  for (size_t i = first_failed; i < begun_.size(); ++i) {
    Begun& begun = begun_[i];
    if (begun.releases && begun.failure.status.ok()) {
      begun.launched = begun.in_order || is_lost(*begun.releases);
    }
  }
  unread_.erase(std::remove_if(unread_.begin(), unread_.end(),
                               [&](const Unread& unread) { return is_lost(unread.slot); }),
                unread_.end());
}

}  // namespace perigee
