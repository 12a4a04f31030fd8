#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_target.h"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/rank/publication_checks.h"

namespace perigee {
namespace {

SendArguments SendOf(const CudaTarget& target, const BFloat16* hidden, const float* route_weights) {
  return {hidden, route_weights, target.facts().token_count, target.plan()->view()};
}

// Where a preparation runs beside the producer. Its blocks come before those of the producer, which
// would leave it no SM until they have ended.
absl::Status MakePreparationLane(CudaRank& rank) {
  if (rank.preparation.stream != nullptr) return absl::OkStatus();
  auto lane = MakeLane(rank.device, StreamPriority::kHigh);
  if (!lane.ok()) return lane.status();
  rank.preparation = *std::move(lane);
  return absl::OkStatus();
}

absl::Status LaunchBeside(CudaRank& rank, const SendArguments& send) {
  absl::Status status = rank.preparation.begin->Record((*rank.stream)->get());
  const LaunchTarget target = {(*rank.preparation.stream)->get(), rank.sms->sms(),
                               /*programmatic_launch=*/false};
  if (status.ok()) status = rank.preparation.begin->MakeWait(target.stream);
  if (!status.ok()) return status;
  const int error = LaunchSendRoutes(target, rank.view, send);
  if (status = LaunchStatus(rank, error, "prepare publication"); !status.ok()) return status;
  rank.prepares_beside = true;
  return rank.preparation.end->Record(target.stream);
}

absl::Status QueuePreparation(CudaRank& rank, const TargetPtr& handle, const float* route_weights,
                              bool beside) {
  absl::Status status = rank.progress->BeginLocal(Operation::kPreparePublication);
  if (!status.ok()) return status;
  const auto target = CudaTargetOf(handle);
  if (!target.ok()) return target.status();
  const TargetFacts facts = (*target)->facts();
  if (status = CheckPreparePublication(rank, facts, route_weights); !status.ok()) return status;
  if (beside) status = MakePreparationLane(rank);
  if (!status.ok()) return status;
  NoteLocal(rank, Operation::kPreparePublication);
  const SendArguments send = SendOf(**target, nullptr, route_weights);
  if (beside) {
    status = LaunchBeside(rank, send);
    if (!status.ok()) rank.progress->Abort(-1, std::string(status.message()));
  } else {
    const int error = LaunchSendRoutes(rank.target(), rank.view, send);
    status = LaunchStatus(rank, error, "prepare publication");
  }
  if (status.ok()) rank.live = LivePrepared(facts, route_weights);
  return status;
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

absl::Status QueuePreparePublication(CudaRank& rank, const TargetPtr& target,
                                     const float* route_weights) {
  return QueuePreparation(rank, target, route_weights, /*beside=*/false);
}

absl::Status QueuePreparationBeside(CudaRank& rank, const TargetPtr& target,
                                    const float* route_weights) {
  return QueuePreparation(rank, target, route_weights, /*beside=*/true);
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
  LaunchTarget publish_target = rank.target();
  // The kernel ahead is not all that it waits for then.
  if (rank.prepares_beside) publish_target.programmatic_launch = false;
  if (status = WaitForPreparation(rank); !status.ok()) {
    rank.progress->Abort(-1, std::string(status.message()));
    return status;
  }
  // Alone, the kernel that expands may have more SMs.
  const bool expands_here = rank.local_sms <= rank.sms->sms();
  const PlanView& view = plan->view();
  int error = LaunchPublish(publish_target, rank.view, mark, entry, view, expands_here);
  if (error == 0 && !expands_here) {
    error = LaunchExpand(rank.local_target(), rank.view, mark, view, /*own_too=*/true);
  }
  if (error == 0) error = LaunchOutput(rank, mark, view, output);
  if (status = LaunchStatus(rank, error, "publish"); !status.ok()) return status;
  rank.live = LiveAfterPublish(rank.live);
  return PlanPtr(plan);
}

}  // namespace perigee
