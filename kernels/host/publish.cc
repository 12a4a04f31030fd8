#include "kernels/host/publish.h"

#include <memory>
#include <utility>

#include "kernels/host/dispatch_steps.h"
#include "kernels/host/host_plan.h"
#include "kernels/host/local_rows.h"
#include "kernels/rank/plan_output.h"

namespace perigee {
namespace {

class HostTarget final : public TargetHandle {
 public:
  HostTarget(const HostRank& rank, Sequence sequence, int32_t token_count, Planned planned)
      : facts_{rank.TagOf(sequence), rank.rank, token_count}, planned_(std::move(planned)) {
    producer_.dst = planned_.dst.data();
    for (const ShardView& shard : rank.shards) producer_.rows.push_back(shard.rows);
    producer_.logical_rows = rank.logical_rows();
    // Every rank maps every shard for writing.
    producer_.access.assign(rank.shards.size(), kFullAccess);
  }

  ObjectTag tag() const override { return facts_.tag; }
  int32_t token_count() const override { return facts_.token_count; }
  const ProducerView& producer() const override { return producer_; }
  const TargetFacts& facts() const { return facts_; }
  const Planned& planned() const { return planned_; }

 private:
  const TargetFacts facts_;
  const Planned planned_;
  ProducerView producer_;
};

absl::StatusOr<const HostTarget*> HostTargetOf(const TargetPtr& target) {
  if (target == nullptr) return absl::InvalidArgumentError("target is null");
  const auto* host_target = dynamic_cast<const HostTarget*>(target.get());
  if (host_target != nullptr) return host_target;
  return absl::InvalidArgumentError("target was made by another backend, expected host");
}

}  // namespace

absl::StatusOr<TargetFacts> HostTargetFacts(const TargetPtr& target) {
  const absl::StatusOr<const HostTarget*> host_target = HostTargetOf(target);
  if (!host_target.ok()) return host_target.status();
  return (*host_target)->facts();
}

absl::StatusOr<TargetPtr> HostPrepareDispatch(HostRank& rank, Sequence sequence,
                                              const TargetInput& input) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kPrepareDispatch);
  if (!status.ok()) return status;
  if (status = CheckPrepareDispatch(rank, input); !status.ok()) return status;
  absl::StatusOr<Planned> planned = PlanTogether(rank, sequence, Operation::kPrepareDispatch,
                                                 input.topk_experts, input.token_count);
  if (!planned.ok()) return planned.status();
  rank.live = LiveWithTarget(sequence);
  if (input.plan.sequence != nullptr) {
    const HostPlan plan(rank.TagOf(sequence), rank.rank, input.token_count, planned->placement,
                        planned->dst, DuplicateGroups());
    WritePlan(plan.Tensors(), sequence, input.plan);
  }
  return std::make_shared<const HostTarget>(rank, sequence, input.token_count, *std::move(planned));
}

absl::Status HostPreparePublication(HostRank& rank, const TargetPtr& handle,
                                    const float* route_weights) {
  absl::Status status = rank.collective->BeginLocal(Operation::kPreparePublication);
  if (!status.ok()) return status;
  const absl::StatusOr<const HostTarget*> target = HostTargetOf(handle);
  if (!target.ok()) return target.status();
  const TargetFacts& facts = (*target)->facts();
  if (status = CheckPreparePublication(rank, facts, route_weights); !status.ok()) return status;
  const Planned& planned = (*target)->planned();
  if (route_weights != nullptr) {
    SendTokens(rank, planned.dst, {nullptr, nullptr, route_weights, facts.token_count});
  }
  SendLinks(rank, planned.dst, facts.token_count);
  ZeroPadding(rank, planned.placement.zero_fill_of(rank.rank));
  rank.live = LivePrepared(facts, route_weights);
  return absl::OkStatus();
}

absl::Status HostStoreRows(HostRank& rank, const TargetPtr& handle, const BFloat16* hidden) {
  absl::Status status = rank.collective->BeginLocal(Operation::kStoreRows);
  if (!status.ok()) return status;
  const absl::StatusOr<const HostTarget*> target = HostTargetOf(handle);
  if (!target.ok()) return target.status();
  const TargetFacts& facts = (*target)->facts();
  if (status = CheckStoreRows(rank, facts, hidden); !status.ok()) return status;
  SendTokens(rank, (*target)->planned().dst, {hidden, nullptr, nullptr, facts.token_count});
  return absl::OkStatus();
}

absl::StatusOr<PlanPtr> HostPublish(HostRank& rank, Sequence sequence, const TargetPtr& handle,
                                    const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kPublish);
  if (!status.ok()) return status;
  const absl::StatusOr<const HostTarget*> target = HostTargetOf(handle);
  if (!target.ok()) return target.status();
  const TargetFacts& facts = (*target)->facts();
  if (status = CheckPublish(rank, facts, output); !status.ok()) return status;

  const LiveRows before = std::exchange(rank.live, LiveRows());
  OperationDescriptor descriptor = rank.Descriptor(Operation::kPublish);
  descriptor.plan_sequence = facts.tag.sequence.value;
  // Orders: what every rank's producer and preparation stored into this shard before the reads
  // below and the caller's.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan =
      Deliver(rank, facts.tag.sequence, facts.token_count, (*target)->planned(), output);
  if (!plan.ok()) return plan.status();
  rank.live = LiveAfterPublish(before);
  return PlanPtr(*plan);
}

}  // namespace perigee
