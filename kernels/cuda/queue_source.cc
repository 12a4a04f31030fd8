#include <memory>
#include <utility>

#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/rank/source_checks.h"

namespace perigee {
namespace {

class CudaSource final : public SourceHandle {
 public:
  CudaSource(const CudaRank& rank, std::shared_ptr<CudaPlan> plan)
      : living_(rank.source),
        cuda_plan_(std::move(plan)),
        plan_(cuda_plan_),
        view_(MakeSourceView(rank)) {
    view_.origins = rank.source_lists.origins;
  }

  ObjectTag tag() const override { return cuda_plan_->tag(); }
  RankId rank() const override { return cuda_plan_->rank(); }
  int32_t token_count() const override { return cuda_plan_->facts().token_count; }
  const PlanPtr& plan() const override { return plan_; }
  const PlanView& plan_view() const { return cuda_plan_->view(); }

 private:
  const LivingSource& living() const override { return living_; }
  const SourceView& view() const override { return view_; }

  const LivingSource living_;
  const std::shared_ptr<CudaPlan> cuda_plan_;
  const PlanPtr plan_;
  SourceView view_;
};

absl::StatusOr<const CudaSource*> CudaSourceOf(const SourcePtr& source) {
  if (source == nullptr) return absl::InvalidArgumentError("source view is null");
  const auto* cuda_source = dynamic_cast<const CudaSource*>(source.get());
  if (cuda_source != nullptr) return cuda_source;
  return absl::InvalidArgumentError("source view was made by another backend, expected cuda");
}

// What is stored, if the operation stores anything.
int LaunchStore(const CudaRank& rank, const SourceInput& input) {
  if (!StoresSource(rank, input)) return 0;
  const StoreSourceArguments store{input.hidden, input.route_weights, input.token_count,
                                   rank.sources[rank.rank.value]};
  return LaunchStoreSource(rank.local_target(), rank.view, store);
}

}  // namespace

absl::StatusOr<SourcePtr> QueuePrepareSource(CudaRank& rank, Sequence sequence,
                                             const SourceInput& input) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kPrepareSource);
  if (!status.ok()) return status;
  if (status = CheckPrepareSource(rank, input); !status.ok()) return status;
  if (status = CheckAligned("hidden", input.hidden); !status.ok()) return status;
  auto plan = CudaPlan::Create(rank.plans, rank, sequence, input.token_count);
  if (!plan.ok()) return plan.status();
  // The view that lives is not of what lies there then, whatever becomes of the operation.
  if (StoresSource(rank, input)) rank.source.Set(Sequence());
  const OperationMark mark = MarkOf(rank, Operation::kPrepareSource);
  const EntryArguments entry =
      NoteEntry(rank, rank.Descriptor(Operation::kPrepareSource), 0, {.mark = mark, .plan = *plan});
  const PlanningArguments planning{input.topk_experts, input.token_count, rank.scratch,
                                   (*plan)->view()};
  int error = LaunchStore(rank, input);
  if (error == 0) {
    error = LaunchPrepareSource(rank.target(), rank.view, mark, entry, planning, rank.source_lists);
  }
  NoteExit(rank);
  if (error == 0 && input.plan.sequence != nullptr) {
    error = LaunchCopyPlan(rank.local_target(), rank.view, mark, (*plan)->view(), input.plan);
  }
  if (status = LaunchStatus(rank, error, "prepare source"); !status.ok()) return status;
  rank.source.Set(sequence);
  return std::make_shared<const CudaSource>(rank, *std::move(plan));
}

absl::StatusOr<PlanPtr> QueueMaterialise(CudaRank& rank, Sequence sequence, const SourcePtr& handle,
                                         const DispatchOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kMaterialise);
  if (!status.ok()) return status;
  const auto source = CudaSourceOf(handle);
  if (!source.ok()) return source.status();
  if (status = CheckMaterialise(rank, **source, output); !status.ok()) return status;
  if (status = CheckAligned("output rows", output.rows); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kMaterialise);
  descriptor.plan_sequence = (*source)->tag().sequence.value;
  const OperationMark mark = MarkOf(rank, Operation::kMaterialise);
  const EntryArguments entry = NoteEntry(rank, descriptor, 0, {.mark = mark});
  const PlanView& plan = (*source)->plan_view();
  int error = LaunchMaterialise(rank.target(), rank.view, mark, entry, plan, rank.source_lists);
  NoteExit(rank);
  if (error == 0) error = LaunchOutput(rank, mark, plan, output);
  if (status = LaunchStatus(rank, error, "materialise"); !status.ok()) return status;
  rank.live = LiveAfterMaterialise(**source);
  return (*source)->plan();
}

}  // namespace perigee
