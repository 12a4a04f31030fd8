#include "kernels/host/dispatch.h"

#include <utility>

#include "kernels/host/dispatch_steps.h"
#include "kernels/host/local_rows.h"

namespace perigee {

absl::StatusOr<std::shared_ptr<const HostPlan>> HostDispatch(HostRank& rank, Sequence sequence,
                                                             const DispatchInput& input,
                                                             const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatch);
  if (!status.ok()) return status;
  if (status = CheckDispatch(rank, input, output); !status.ok()) return status;

  const absl::StatusOr<Planned> planned =
      PlanTogether(rank, sequence, Operation::kDispatch, input.topk_experts, input.token_count);
  if (!planned.ok()) return planned.status();
  const LiveRows before = std::exchange(rank.live, LiveRows());
  SendTokens(rank, planned->dst, input);
  SendLinks(rank, planned->dst, input.token_count);
  ZeroPadding(rank, planned->placement.zero_fill_of(rank.rank));
  // Orders: every rank's stores into this shard before the reads below and the caller's.
  if (status = rank.collective->Exit(); !status.ok()) return status;

  auto plan = Deliver(rank, sequence, input.token_count, *planned, output);
  if (plan.ok()) rank.live = LiveAfterDispatch(sequence, input, before);
  return plan;
}

absl::Status HostDispatchWithPlan(HostRank& rank, Sequence sequence, const PlanPtr& handle,
                                  const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatchWithPlan);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckDispatchWithPlan(rank, (*plan)->facts(), input, output); !status.ok())
    return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kDispatchWithPlan);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  // Orders: peers' reads of this shard in the last combine before the stores below.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  const LiveRows before = std::exchange(rank.live, LiveRows());
  SendTokens(rank, (*plan)->dst(), input);
  ZeroPadding(rank, (*plan)->zero_fill_ranges());
  // Orders: every rank's stores into this shard before the reads below and the caller's.
  if (status = rank.collective->Exit(); !status.ok()) return status;

  ExpandDuplicates(rank, (*plan)->duplicates());
  rank.live = LiveAfterDispatch((*plan)->tag().sequence, input, before);
  CopyOut(rank, (*plan)->used_rows(), output);
  return absl::OkStatus();
}

}  // namespace perigee
