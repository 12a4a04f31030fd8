// Dispatches, experts and combines of a program that have their rows in output slots
// (docs/rings.md).
#include <utility>

#include "worker/ops/operation_arguments.h"
#include "worker/ops/operation_launcher.h"

namespace perigee {
namespace {

// The slot that a checked program has named; without an identity where what takes it has failed.
RingSlot SlotNamed(const std::map<std::string, RingSlot>& slots, const std::string& name) {
  const auto found = slots.find(name);
  return found == slots.end() ? RingSlot() : found->second;
}

}  // namespace

Failure OperationLauncher::DispatchIntoSlot(const v1::DispatchOperation& operation,
                                            Sequence sequence, const DispatchTensors& inputs,
                                            PlanPtr saved) {
  RankOperations::SlotTaken taken =
      operations_.DispatchIntoSlot(sequence, inputs.input, std::move(saved));
  dispatch_output_slots_[operation.slot()] = taken.slot;
  if (!taken.plan) return std::move(taken.failure);
  if (operation.saved_plan().empty()) {
    KeepPlanAlone(operation.plan(), std::move(taken.plan), inputs.input.token_count);
    return Failure();
  }
  last_plan_ = std::move(taken.plan);
  last_token_count_ = inputs.input.token_count;
  return Failure();
}

Failure OperationLauncher::RunExpertsOfSlot(const v1::RunExpertsOperation& operation,
                                            const PlanPtr& plan) {
  const bool into_slot = !operation.output_slot().empty();
  RankOperations::SlotTaken taken = operations_.RunExpertsOfSlot(
      SlotNamed(dispatch_output_slots_, operation.slot()), plan, operation.layer(),
      operation.weights_version(), operation.apply_route_weights(), into_slot);
  if (!taken.failure.status.ok()) return std::move(taken.failure);
  unsettled_.rows |= !into_slot;
  if (into_slot) expert_output_slots_[operation.output_slot()] = taken.slot;
  return Failure();
}

Failure OperationLauncher::CombineOfSlot(const v1::CombineOperation& operation, Sequence sequence,
                                         const PlanPtr& plan, const CombineOutput& output) {
  const RingSlot slot = SlotNamed(expert_output_slots_, operation.slot());
  return operations_.CombineOfSlot(sequence, plan, slot, output);
}

}  // namespace perigee
