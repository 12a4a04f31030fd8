#include "kernels/rank/path_rings.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {
namespace {

RingId IdOf(const RankShape& shape, RingKind kind) {
  return {kind, shape.buffer, shape.generation, shape.rank};
}

absl::Status CheckKind(const RingSlot& slot, RingKind wanted, const char* what) {
  if (slot.ring.kind == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, wanted == RingKind::kDispatchOutput ? " expected a dispatch-output slot, got an expert-"
                                                  "output slot"
                                                : " expected an expert-output slot, got a dispatch-"
                                                  "output slot"));
}

}  // namespace

PathRings::PathRings(const RingOptions& options, DataPath& path, RankShape& shape, RingSide& side)
    : path_(path),
      shape_(shape),
      side_(side),
      dispatch_output_(
          IdOf(shape, RingKind::kDispatchOutput), options.dispatch_slots,
          [&side](int32_t slot) {
            return std::atomic_ref<uint64_t>(*side.WordOf(slot)).load(std::memory_order_acquire) !=
                   0;
          }),
      // Written and read in the order of the data path's operations.
      expert_output_(IdOf(shape, RingKind::kExpertOutput), options.expert_slots,
                     [](int32_t) { return true; }),
      expert_plans_(options.expert_slots) {}

absl::StatusOr<RingSlot> PathRings::TakeForDispatch(Sequence sequence) {
  side_.ForgetError();
  // The map of duplicates is the shard's own.
  if (absl::Status status = CheckShardFree(shape_); !status.ok()) return status;
  absl::StatusOr<RingSlot> slot = dispatch_output_.Acquire(sequence.value);
  if (!slot.ok()) return slot;
  live_before_ = std::exchange(shape_.slot_live[slot->index], LiveRows());
  side_.UseSlot(slot->index);
  return slot;
}

void PathRings::EndDispatch(const RingSlot& slot, const absl::Status& status) {
  side_.UseSlot(-1);
  if (!status.ok()) return Undo({0, true, slot, live_before_});
  if (shape_.live.target != Sequence()) shape_.live = LiveRows();
  Note(true, slot, live_before_);
}

absl::StatusOr<SlotDispatched> PathRings::Dispatch(Sequence sequence, const DispatchInput& input,
                                                   const PlanArrays& plan_output) {
  const absl::StatusOr<RingSlot> slot = TakeForDispatch(sequence);
  if (!slot.ok()) return slot.status();
  absl::StatusOr<PlanPtr> plan = path_.Dispatch(sequence, input, {nullptr, nullptr, plan_output});
  EndDispatch(*slot, plan.status());
  if (!plan.ok()) return plan.status();
  return SlotDispatched{*std::move(plan), *slot};
}

absl::StatusOr<RingSlot> PathRings::DispatchWithPlan(Sequence sequence, const PlanPtr& plan,
                                                     const DispatchInput& input) {
  absl::StatusOr<RingSlot> slot = TakeForDispatch(sequence);
  if (!slot.ok()) return slot;
  absl::Status status = path_.DispatchWithPlan(sequence, plan, input, {});
  EndDispatch(*slot, status);
  if (!status.ok()) return status;
  return slot;
}

absl::Status PathRings::CheckDispatchOutput(const RingSlot& slot) const {
  absl::Status status = CheckKind(slot, RingKind::kDispatchOutput, "experts:");
  return status.ok() ? dispatch_output_.Check(slot) : status;
}

absl::StatusOr<RingSlot> PathRings::RunExperts(const RingSlot& slot, const PlanPtr& plan,
                                               const ExpertWeights& weights,
                                               const SlotExperts& experts) {
  side_.ForgetError();
  if (absl::Status status = CheckDispatchOutput(slot); !status.ok()) return status;
  RingSlot output;
  BFloat16* to = experts.output;
  if (to == nullptr) {
    absl::StatusOr<RingSlot> taken = TakeForExperts(plan);
    if (!taken.ok()) return taken;
    output = *taken;
    to = side_.ExpertRows(output.index);
  }
  side_.UseSlot(slot.index);
  const ShardView& own = shape_.own();
  absl::Status status = absl::InvalidArgumentError(
      "the output of experts is the slot that they read, expected other memory");
  if (to != own.rows) {
    const float* row_weights = experts.apply_route_weights ? own.row_weights : nullptr;
    status = path_.RunExperts(plan, weights, {own.rows, row_weights, to});
  }
  side_.UseSlot(-1);
  if (!status.ok()) {
    if (output.identity != 0) Undo({0, true, output});
    return status;
  }
  if (output.identity != 0) Note(true, output);
  if (experts.keeps_rows) return output;
  if (status = ReleaseInOrder(slot); !status.ok()) return status;
  return output;
}

absl::StatusOr<RingSlot> PathRings::AcquireExpertOutput(const PlanPtr& plan) {
  side_.ForgetError();
  absl::StatusOr<RingSlot> slot = TakeForExperts(plan);
  if (slot.ok()) Note(true, *slot);
  return slot;
}

absl::StatusOr<RingSlot> PathRings::TakeForExperts(const PlanPtr& plan) {
  if (plan == nullptr) return absl::InvalidArgumentError("plan is null");
  // A combine knows the slot's plan by its sequence alone.
  absl::Status status = CheckPlanOwner(shape_, plan->tag(), shape_.rank);
  if (!status.ok()) return status;
  absl::StatusOr<RingSlot> slot = expert_output_.Acquire(expert_outputs_ + 1);
  if (!slot.ok()) return slot;
  ++expert_outputs_;
  expert_plans_[slot->index] = plan->tag().sequence;
  return slot;
}

absl::Status PathRings::Combine(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                                const float* row_weights, const CombineOutput& output) {
  side_.ForgetError();
  absl::Status status = CheckKind(slot, RingKind::kExpertOutput, "combine:");
  if (status.ok()) status = expert_output_.Check(slot);
  if (!status.ok()) return status;
  if (plan == nullptr) return absl::InvalidArgumentError("plan is null");
  const Sequence held = expert_plans_[slot.index];
  if (held != plan->tag().sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert-output slot ", slot.index, " holds rows of the plan of sequence ",
                     held.value, ", expected the plan of sequence ", plan->tag().sequence.value));
  }
  status = path_.Combine(sequence, plan, {side_.ExpertRows(slot.index), row_weights}, output);
  return status.ok() ? ReleaseInOrder(slot) : status;
}

absl::Status PathRings::Release(const RingSlot& slot) {
  side_.ForgetError();
  return ReleaseInOrder(slot);
}

absl::Status PathRings::ReleaseInOrder(const RingSlot& slot) {
  absl::Status status = Of(slot.ring.kind).Release(slot);
  if (!status.ok()) return status;
  Note(false, slot);
  if (slot.ring.kind == RingKind::kExpertOutput) return absl::OkStatus();
  return side_.FreeInOrder(slot.index);
}

absl::Status PathRings::ReleaseAll() {
  absl::Status first;
  for (const SlotRing* ring : {&dispatch_output_, &expert_output_}) {
    for (const RingSlot& slot : ring->AllAcquired()) {
      const absl::Status status = Release(slot);
      if (first.ok()) first = status;
    }
  }
  return first;
}

absl::Status PathRings::ReleaseOnStream(const RingSlot& slot, CUstream_st* stream) {
  side_.ForgetError();
  absl::Status status = CheckKind(slot, RingKind::kDispatchOutput, "release on a stream:");
  if (status.ok()) status = dispatch_output_.Check(slot);
  // First what may fail: a slot that is released without a word to come is lost.
  if (status.ok()) status = side_.FreeOnStream(slot.index, stream);
  return status.ok() ? dispatch_output_.Release(slot) : status;
}

absl::StatusOr<ReleaseWord> PathRings::ReleaseByWord(const RingSlot& slot) {
  side_.ForgetError();
  absl::Status status = CheckKind(slot, RingKind::kDispatchOutput, "release by a word:");
  if (status.ok()) status = dispatch_output_.Release(slot);
  if (!status.ok()) return status;
  return ReleaseWord(side_.WordOf(slot.index));
}

absl::Status PathRings::CaptureRelease(int32_t index, CUstream_st* stream) {
  if (index >= 0 && index < dispatch_output_.size()) return side_.FreeOnStream(index, stream);
  return absl::InvalidArgumentError(absl::StrCat("dispatch-output slot is ", index,
                                                 ", expected 0 to ", dispatch_output_.size() - 1));
}

absl::StatusOr<SlotMemory> PathRings::MemoryOf(const RingSlot& slot) const {
  if (absl::Status status = Of(slot.ring.kind).Check(slot); !status.ok()) return status;
  if (slot.ring.kind == RingKind::kExpertOutput) return SlotMemory{side_.ExpertRows(slot.index)};
  const ShardView& view = shape_.slot_shards[slot.index][shape_.rank.value];
  return SlotMemory{view.rows, view.row_weights};
}

void PathRings::Note(bool acquires, const RingSlot& slot, const LiveRows& live_before) {
  if (path_.queues()) steps_.push_back({side_.last_place(), acquires, slot, live_before});
}

// Who had a slot before may get it back, with the rows that nobody has written over.
void PathRings::Undo(const Step& step) {
  SlotRing& ring = Of(step.slot.ring.kind);
  if (!step.acquires) return ring.UndoRelease(step.slot);
  ring.UndoAcquire(step.slot);
  if (step.slot.ring.kind == RingKind::kDispatchOutput) {
    shape_.slot_live[step.slot.index] = step.live_before;
  }
}

void PathRings::Ended(uint32_t place) {
  const auto has_ended = [place](const Step& step) {
    return static_cast<int32_t>(step.place - place) < 0;
  };
  steps_.erase(std::remove_if(steps_.begin(), steps_.end(), has_ended), steps_.end());
}

void PathRings::UndoRest() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) Undo(*step);
  steps_.clear();
}

}  // namespace perigee
