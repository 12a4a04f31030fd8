#include <memory>
#include <utility>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/planning_launch.h"

namespace perigee {
namespace {

absl::Status CheckAlignment(const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = CheckAligned("hidden", input.hidden);
  return status.ok() ? CheckAligned("output rows", output.rows) : status;
}

SendArguments SendOf(const DispatchInput& input, const PlanView& plan, bool send_links) {
  return {input.hidden, input.route_weights, input.token_count, send_links, plan};
}

// After the exit barrier, which orders every rank's stores into this shard before them.
absl::Status QueueDelivery(CudaRank& rank, const PlanView& plan, const DispatchOutput& output) {
  int error = LaunchExpand(rank.target(), rank.view, plan);
  if (error == 0) {
    const CopyArguments copy{output.rows, rank.own().rows, output.row_weights,
                             rank.own().row_weights};
    error = LaunchCopyUsedRows(rank.target(), rank.view, plan, copy);
  }
  return LaunchStatus(rank, error, "dispatch");
}

}  // namespace

absl::StatusOr<PlanPtr> QueueDispatch(CudaRank& rank, Sequence sequence, const DispatchInput& input,
                                      const DispatchOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kDispatch);
  if (!status.ok()) return status;
  if (status = CheckDispatch(rank, input, output); !status.ok()) return status;
  if (status = CheckAlignment(input, output); !status.ok()) return status;
  auto plan = CudaPlan::Create(rank.plans, rank, sequence, input.token_count);
  if (!plan.ok()) return plan.status();

  const PlanningArguments arguments{input.topk_experts, input.token_count, rank.scratch,
                                    (*plan)->view()};
  const OperationMark mark = MarkOf(rank, Operation::kDispatch);
  int error = LaunchCountRoutes(rank.target(), rank.view, mark, arguments);
  if (status = LaunchStatus(rank, error, "planning"); !status.ok()) return status;
  QueuedOperation queued{.mark = mark, .plan = *plan};
  // Orders: peers' reads of this shard in the last combine, and their histograms, before the stores
  // and reads below.
  status = QueueEntry(rank, rank.Descriptor(Operation::kDispatch), 0, std::move(queued));
  if (!status.ok()) return status;
  error = LaunchMakePlan(rank.target(), rank.view, mark, arguments);
  if (error == 0) {
    error = LaunchSend(rank.target(), rank.view, SendOf(input, arguments.plan, true));
  }
  if (status = LaunchStatus(rank, error, "dispatch"); !status.ok()) return status;
  if (status = QueueExit(rank); !status.ok()) return status;
  error = LaunchListDuplicates(rank.target(), rank.view, mark, arguments);
  if (status = LaunchStatus(rank, error, "planning"); !status.ok()) return status;
  if (status = QueueDelivery(rank, arguments.plan, output); !status.ok()) return status;
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
  QueuedOperation queued{.mark = MarkOf(rank, Operation::kDispatchWithPlan)};
  // Orders: peers' reads of this shard in the last combine before the stores below.
  status = QueueEntry(rank, descriptor, 0, std::move(queued));
  if (!status.ok()) return status;
  const PlanView& view = (*plan)->view();
  const int error = LaunchSend(rank.target(), rank.view, SendOf(input, view, false));
  if (status = LaunchStatus(rank, error, "dispatch"); !status.ok()) return status;
  if (status = QueueExit(rank); !status.ok()) return status;
  if (status = QueueDelivery(rank, view, output); !status.ok()) return status;
  rank.live = LiveAfterDispatch((*plan)->tag().sequence, input, rank.live);
  return absl::OkStatus();
}

}  // namespace perigee
