#include <memory>
#include <utility>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/rank/publication_checks.h"

namespace perigee {
namespace {

class CudaTarget final : public TargetHandle {
 public:
  CudaTarget(const CudaRank& rank, std::shared_ptr<CudaPlan> plan) : plan_(std::move(plan)) {
    producer_.dst = plan_->view().dst;
    for (const ShardView& shard : rank.shards) producer_.rows.push_back(shard.rows);
    producer_.logical_rows = rank.logical_rows();
  }

  ObjectTag tag() const override { return plan_->tag(); }
  int32_t token_count() const override { return plan_->facts().token_count; }
  const ProducerView& producer() const override { return producer_; }
  const std::shared_ptr<CudaPlan>& plan() const { return plan_; }
  TargetFacts facts() const { return {tag(), plan_->rank(), token_count()}; }

 private:
  const std::shared_ptr<CudaPlan> plan_;  // complete when it is published
  ProducerView producer_;
};

absl::StatusOr<const CudaTarget*> CudaTargetOf(const TargetPtr& target) {
  if (target == nullptr) return absl::InvalidArgumentError("target is null");
  const auto* cuda_target = dynamic_cast<const CudaTarget*>(target.get());
  if (cuda_target != nullptr) return cuda_target;
  return absl::InvalidArgumentError("target was made by another backend, expected cuda");
}

SendArguments SendOf(const CudaTarget& target, const BFloat16* hidden, const float* route_weights) {
  return {hidden, route_weights, target.facts().token_count, target.plan()->view()};
}

// A local step of the target, noted as queued.
OperationMark NoteLocal(CudaRank& rank, Operation operation) {
  const OperationMark mark = MarkOf(rank, operation);
  rank.queued.push_back({.mark = mark, .live_before = rank.live});
  return mark;
}

}  // namespace

absl::StatusOr<TargetPtr> QueuePrepareDispatch(CudaRank& rank, Sequence sequence,
                                               const TargetInput& input) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kPrepareDispatch);
  if (!status.ok()) return status;
  if (status = CheckPrepareDispatch(rank, input); !status.ok()) return status;
  auto plan = CudaPlan::Create(rank.plans, rank, sequence, input.token_count);
  if (!plan.ok()) return plan.status();
  const OperationMark mark = MarkOf(rank, Operation::kPrepareDispatch);
  const EntryArguments entry = NoteEntry(rank, rank.Descriptor(Operation::kPrepareDispatch), 0,
                                         {.mark = mark, .plan = *plan});
  const PlanningArguments planning{input.topk_experts, input.token_count, rank.scratch,
                                   (*plan)->view()};
  int error = LaunchPlan(rank.target(), rank.view, mark, entry, planning);
  if (error == 0 && input.plan.sequence != nullptr) {
    error = LaunchCopyPlan(rank.local_target(), rank.view, mark, (*plan)->view(), input.plan);
  }
  if (status = LaunchStatus(rank, error, "prepare dispatch"); !status.ok()) return status;
  rank.live = LiveWithTarget(sequence);
  return std::make_shared<const CudaTarget>(rank, *std::move(plan));
}

absl::Status QueuePreparePublication(CudaRank& rank, const TargetPtr& handle,
                                     const float* route_weights) {
  absl::Status status = rank.progress->BeginLocal(Operation::kPreparePublication);
  if (!status.ok()) return status;
  const auto target = CudaTargetOf(handle);
  if (!target.ok()) return target.status();
  const TargetFacts facts = (*target)->facts();
  if (status = CheckPreparePublication(rank, facts, route_weights); !status.ok()) return status;
  NoteLocal(rank, Operation::kPreparePublication);
  const SendArguments send = SendOf(**target, nullptr, route_weights);
  const int error = LaunchSendRoutes(rank.target(), rank.view, send);
  if (status = LaunchStatus(rank, error, "prepare publication"); !status.ok()) return status;
  rank.live = LivePrepared(facts, route_weights);
  return absl::OkStatus();
}

absl::Status QueueStoreRows(CudaRank& rank, const TargetPtr& handle, const BFloat16* hidden) {
  absl::Status status = rank.progress->BeginLocal(Operation::kStoreRows);
  if (!status.ok()) return status;
  const auto target = CudaTargetOf(handle);
  if (!target.ok()) return target.status();
  if (status = CheckStoreRows(rank, (*target)->facts(), hidden); !status.ok()) return status;
  if (status = CheckAligned("hidden", hidden); !status.ok()) return status;
  const OperationMark mark = NoteLocal(rank, Operation::kStoreRows);
  const SendArguments send = SendOf(**target, hidden, nullptr);
  return LaunchStatus(rank, LaunchStoreRows(rank.target(), rank.view, mark, send), "store rows");
}

absl::StatusOr<PlanPtr> QueuePublish(CudaRank& rank, Sequence sequence, const TargetPtr& handle,
                                     const DispatchOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kPublish);
  if (!status.ok()) return status;
  const auto target = CudaTargetOf(handle);
  if (!target.ok()) return target.status();
  const std::shared_ptr<CudaPlan>& plan = (*target)->plan();
  if (status = CheckPublish(rank, (*target)->facts(), output); !status.ok()) return status;
  if (status = CheckAligned("output rows", output.rows); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kPublish);
  descriptor.plan_sequence = plan->tag().sequence.value;
  const OperationMark mark = MarkOf(rank, Operation::kPublish);
  const EntryArguments entry =
      NoteEntry(rank, descriptor, 0, {.mark = mark, .spoils_shard = true, .plan = plan});
  // Alone, the kernel that expands may have more SMs.
  const bool expands_here = rank.local_sms <= rank.sms->sms();
  const PlanView& view = plan->view();
  int error = LaunchPublish(rank.target(), rank.view, mark, entry, view, expands_here);
  if (error == 0 && !expands_here) {
    error = LaunchExpand(rank.local_target(), rank.view, mark, view, /*own_too=*/true);
  }
  if (error == 0) error = LaunchOutput(rank, mark, view, output);
  if (status = LaunchStatus(rank, error, "publish"); !status.ok()) return status;
  rank.live = LiveAfterPublish(rank.live);
  return PlanPtr(plan);
}

}  // namespace perigee
