#include "worker/ops/ring_check.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/rank/slot_ring.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/tensor_spec.h"

namespace perigee {
namespace {

// One of the two rings, as a program goes through it.
class RingUse {
 public:
  // what: "dispatch-output", reader: who releases.
  RingUse(const char* what, const char* reader, int32_t slots)
      : what_(what), reader_(reader), slots_(slots) {}

  absl::Status Acquire(const std::string& name, int index) {
    absl::Status status = CheckObjectName("slot", name);
    if (!status.ok()) return status;
    if (slots_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat("the buffer has no ", what_, " slots"));
    }
    const auto [held, is_new] = held_.emplace(name, index);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(what_, " slot '", name, "' is operation ",
                                                     held->second, "'s, expected a ", reader_,
                                                     " that releases it before"));
    }
    steps_.push_back({true, index});
    return absl::OkStatus();
  }
  absl::Status Release(const std::string& name) {
    const auto held = held_.find(name);
    if (held == held_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no ", what_, " slot '", name,
          "' here, expected an operation before it that takes one, and none that releases it"));
    }
    steps_.push_back({false, held->second});
    held_.erase(held);
    return absl::OkStatus();
  }
  absl::Status CheckEnd() const {
    if (!held_.empty()) {
      const auto& [name, index] = *held_.begin();
      return absl::InvalidArgumentError(absl::StrCat(what_, " slot '", name, "' of operation ",
                                                     index, " is not released, expected a ",
                                                     reader_, " of it"));
    }
    const int32_t needed = RingDepthNeeded(steps_);
    if (needed <= slots_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the program needs ", needed, " ", what_, " slots, the buffer has ", slots_));
  }

 private:
  const char* const what_;
  const char* const reader_;
  const int32_t slots_;
  std::map<std::string, int> held_;  // by whom
  std::vector<RingStep> steps_;
};

struct Rings {
  explicit Rings(const BufferShape& shape)
      : keeps_gradients(shape.gradients),
        dispatch_output("dispatch-output", "run_experts", shape.dispatch_output_slots),
        expert_output("expert-output", "combine", shape.expert_output_slots) {}

  absl::Status Step(const v1::ProgramOperation& operation, int index);
  absl::Status Step(const v1::DispatchOperation& dispatch, int index);
  absl::Status Step(const v1::RunExpertsOperation& run, int index);
  absl::Status Step(const v1::CombineOperation& combine);

  const bool keeps_gradients;
  RingUse dispatch_output;
  RingUse expert_output;
};

absl::Status Rings::Step(const v1::DispatchOperation& dispatch, int index) {
  if (dispatch.slot().empty()) return absl::OkStatus();
  if (keeps_gradients && !dispatch.copies_rows()) {
    return absl::InvalidArgumentError(
        "the buffer keeps gradients, for which rows are needed again: expected copies_rows to be "
        "set with slot");
  }
  if (!dispatch.rows_output().empty() || !dispatch.row_weights_output().empty()) {
    return absl::InvalidArgumentError(
        "slot is set and outputs for the rows are, expected at most one of them");
  }
  return dispatch_output.Acquire(dispatch.slot(), index);
}

absl::Status Rings::Step(const v1::RunExpertsOperation& run, int index) {
  if (run.slot().empty() && !run.output_slot().empty()) {
    return absl::InvalidArgumentError("output_slot is set and slot is not, expected both");
  }
  if (run.slot().empty()) return absl::OkStatus();
  absl::Status status = dispatch_output.Release(run.slot());
  if (!status.ok() || run.output_slot().empty()) return status;
  return expert_output.Acquire(run.output_slot(), index);
}

absl::Status Rings::Step(const v1::CombineOperation& combine) {
  if (combine.slot().empty()) return absl::OkStatus();
  if (!combine.route_weights_output().empty()) {
    return absl::InvalidArgumentError(
        "route_weights_output is set, expected none with an expert-output slot, which has no "
        "weights");
  }
  if (!combine.rows().empty()) {
    return absl::InvalidArgumentError("slot and rows are both set, expected one of them");
  }
  return expert_output.Release(combine.slot());
}

absl::Status Rings::Step(const v1::ProgramOperation& operation, int index) {
  if (operation.has_dispatch()) return Step(operation.dispatch(), index);
  if (operation.has_run_experts()) return Step(operation.run_experts(), index);
  return operation.has_combine() ? Step(operation.combine()) : absl::OkStatus();
}

}  // namespace

absl::Status CheckRings(const v1::Program& program, const BufferShape& shape) {
  Rings rings(shape);
  for (int index = 0; index < program.operations_size(); ++index) {
    const absl::Status status = rings.Step(program.operations(index), index);
    if (status.ok()) continue;
    return InvalidProgram(absl::StrCat("operation ", index, ": ", status.message()));
  }
  for (const RingUse* ring : {&rings.dispatch_output, &rings.expert_output}) {
    const absl::Status status = ring->CheckEnd();
    if (!status.ok()) return InvalidProgram(status.message());
  }
  return absl::OkStatus();
}

}  // namespace perigee
