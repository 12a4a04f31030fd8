#include <memory>
#include <utility>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"

namespace perigee {
namespace {

absl::Status CheckAlignment(const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = CheckAligned("hidden", input.hidden);
  return status.ok() ? CheckAligned("output rows", output.rows) : status;
}

SendArguments SendOf(const CudaRank& rank, const DispatchInput& input, const PlanView& plan) {
  // Alone, the kernel that expands may have more SMs.
  const bool expands_here = rank.local_sms <= rank.sms->sms();
  return {input.hidden, input.route_weights, input.token_count,
          plan,         rank.keep_sms > 0,   expands_here};
}

// Behind the kernel that sends: what stays in this rank's memory.
absl::Status QueueDelivery(CudaRank& rank, const OperationMark& mark, const SendArguments& send,
                           const DispatchOutput& output) {
  int error = 0;
  if (send.keeps_beside) error = LaunchKeep(rank.keep_target(), rank.view, mark, send);
  if (error == 0 && !send.expands_here) {
    error = LaunchExpand(rank.local_target(), rank.view, mark, send.plan);
  }
  if (error == 0) error = LaunchOutput(rank, mark, send.plan, output);
  return LaunchStatus(rank, error, "dispatch");
}

}  // namespace

int LaunchOutput(const CudaRank& rank, const OperationMark& mark, const PlanView& plan,
                 const DispatchOutput& output) {
  const CopyArguments copy{output.rows, rank.own().rows, output.row_weights,
                           rank.own().row_weights};
  const int error = LaunchCopyUsedRows(rank.local_target(), rank.view, plan, copy);
  if (error != 0 || output.plan.sequence == nullptr) return error;
  return LaunchCopyPlan(rank.local_target(), rank.view, mark, plan, output.plan);
}

absl::StatusOr<PlanPtr> QueueDispatch(CudaRank& rank, Sequence sequence, const DispatchInput& input,
                                      const DispatchOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kDispatch);
  if (!status.ok()) return status;
  if (status = CheckDispatch(rank, input, output); !status.ok()) return status;
  if (status = CheckAlignment(input, output); !status.ok()) return status;
  auto plan = CudaPlan::Create(rank.plans, rank, sequence, input.token_count);
  if (!plan.ok()) return plan.status();

  const PlanView& view = (*plan)->view();
  const OperationMark mark = MarkOf(rank, Operation::kDispatch);
  const EntryArguments entry =
      NoteEntry(rank, rank.Descriptor(Operation::kDispatch), 0, {.mark = mark, .plan = *plan});
  const PlanningArguments planning{input.topk_experts, input.token_count, rank.scratch, view};
  const SendArguments send = SendOf(rank, input, view);
  const int error = LaunchDispatch(rank.target(), rank.view, mark, entry, planning, send);
  NoteExit(rank);
  if (status = LaunchStatus(rank, error, "dispatch"); !status.ok()) return status;
  if (status = QueueDelivery(rank, mark, send, output); !status.ok()) return status;
  rank.live = LiveAfterDispatch(sequence, input, rank.live);
  return PlanPtr(*std::move(plan));
}

absl::Status QueueDispatchWithPlan(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                                   const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kDispatchWithPlan);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  status = CheckDispatchWithPlan(rank, (*plan)->facts(), input, output);
  if (!status.ok()) return status;
  if (status = CheckAlignment(input, output); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kDispatchWithPlan);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  const OperationMark mark = MarkOf(rank, Operation::kDispatchWithPlan);
  const EntryArguments entry = NoteEntry(rank, descriptor, 0, {.mark = mark});
  const PlanView& view = (*plan)->view();
  const SendArguments send = SendOf(rank, input, view);
  const int error = LaunchDispatchWithPlan(rank.target(), rank.view, mark, entry, send);
  NoteExit(rank);
  if (status = LaunchStatus(rank, error, "dispatch"); !status.ok()) return status;
  if (status = QueueDelivery(rank, mark, send, output); !status.ok()) return status;
  rank.live = LiveAfterDispatch((*plan)->tag().sequence, input, rank.live);
  return absl::OkStatus();
}

}  // namespace perigee
