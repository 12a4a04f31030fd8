// What RankOperations does with output slots.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/rank_operations.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

absl::Status CheckNext(const BufferRings& rings, int32_t wanted) {
  const int32_t next = rings.next(RingKind::kDispatchOutput);
  // Where there are none at all, taking one says so.
  if (wanted < 0 || wanted == next || rings.slots(RingKind::kDispatchOutput) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "dispatch-output slot ", wanted, " is wanted, expected ", next, ", the next in turn"));
}

}  // namespace

absl::StatusOr<BufferRings*> RankOperations::Rings() const {
  BufferRings* const rings = site_.data_path.rings();
  if (rings != nullptr) return rings;
  return absl::UnimplementedError("this rank has no rings of output slots, expected none named");
}

RankOperations::SlotTaken RankOperations::DispatchIntoSlot(Sequence sequence,
                                                           const DispatchInput& input,
                                                           PlanPtr saved, int32_t wanted,
                                                           const PlanArrays& plan) {
  const absl::StatusOr<BufferRings*> rings = Rings();
  if (!rings.ok()) return {Refused(rings.status())};
  absl::Status status = CheckShardFree();
  if (status.ok()) status = CheckNext(**rings, wanted);
  if (!status.ok()) return {Refused(std::move(status))};
  SlotTaken taken;
  if (saved != nullptr) {
    const absl::StatusOr<RingSlot> slot = (*rings)->DispatchWithPlan(sequence, saved, input);
    if (!slot.ok()) return {Left(slot.status())};
    taken = {Failure(), std::move(saved), *slot};
  } else {
    absl::StatusOr<SlotDispatched> made = (*rings)->Dispatch(sequence, input, plan);
    if (!made.ok()) return {Left(made.status())};
    taken = {Failure(), std::move(made->plan), made->slot};
  }
  // It has gone over a target's map of duplicates.
  site_.objects.DropTarget();
  return taken;
}

RankOperations::SlotTaken RankOperations::RunExpertsOfSlot(const RingSlot& slot,
                                                           const PlanPtr& plan, int32_t layer,
                                                           uint64_t version, bool weighted,
                                                           bool into_slot) {
  const absl::StatusOr<BufferRings*> rings = Rings();
  if (!rings.ok()) return {Refused(rings.status())};
  absl::Status status = into_slot ? absl::OkStatus() : CheckShardFree();
  if (!status.ok()) return {Refused(std::move(status))};
  BFloat16* const output = into_slot ? nullptr : site_.data_path.rows();
  const absl::StatusOr<RingSlot> taken =
      (*rings)->RunExperts(slot, plan, Weights(layer, version), {weighted, output});
  Failure failure = Left(taken.status());
  if (!failure.status.ok()) {
    if (failure.record) {
      if (!into_slot) site_.objects.RowsUndefined(site_.objects.last_sequence());
    } else if (failure.status.code() == absl::StatusCode::kFailedPrecondition) {
      failure.status = WithReason(failure.status, kReasonStaleWeights);
    }
    return {std::move(failure)};
  }
  if (!into_slot) {
    site_.objects.RowsDispatched(Sequence(slot.identity), plan->tag(), /*has_weights=*/false);
    site_.objects.RowsComputed();
  }
  return {Failure(), nullptr, *taken};
}

Failure RankOperations::CombineOfSlot(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                                      const CombineOutput& output) {
  const absl::StatusOr<BufferRings*> rings = Rings();
  if (!rings.ok()) return Refused(rings.status());
  absl::Status status = CheckShardFree();
  if (!status.ok()) return Refused(std::move(status));
  Failure failure = Left((*rings)->Combine(sequence, plan, slot, nullptr, output));
  if (failure.status.ok()) {
    site_.objects.RowsConsumed(sequence);
  } else if (failure.record) {
    site_.objects.RowsUndefined(sequence);
  }
  return failure;
}

Failure RankOperations::ReleaseSlot(const RingSlot& slot) {
  const absl::StatusOr<BufferRings*> rings = Rings();
  return rings.ok() ? Left((*rings)->Release(slot)) : Refused(rings.status());
}

RankOperations::SlotWord RankOperations::ReleaseSlotByWord(const RingSlot& slot) {
  const absl::StatusOr<BufferRings*> rings = Rings();
  if (!rings.ok()) return {Refused(rings.status())};
  const absl::StatusOr<ReleaseWord> word = (*rings)->ReleaseByWord(slot);
  if (!word.ok()) return {Left(word.status())};
  return {Failure(), *word};
}

void RankOperations::DropSlots() {
  BufferRings* const rings = site_.data_path.rings();
  // Where that fails nothing more can follow on the data path, and what does says so.
  if (rings != nullptr) (void)rings->ReleaseAll();
}

}  // namespace perigee
