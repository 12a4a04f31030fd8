#include <algorithm>
#include <utility>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/reduce_gradients_launch.h"
#include "kernels/layout/gradients_layout.h"

namespace perigee {
namespace {

GradientsView ViewOf(const CudaRank& rank, const ExpertGradients& gradients) {
  const GradientsLayout layout = GradientsLayout::Create(gradients.shape, rank.geometry.slots);
  GradientsView view;
  std::copy(gradients.slots.begin(), gradients.slots.end(), view.slots);
  view.own_slots = gradients.own_slots;
  view.kinds[0] = {gradients.home_gate, layout.gate};
  view.kinds[1] = {gradients.home_up, layout.up};
  view.kinds[2] = {gradients.home_down, layout.down};
  view.matrix_elements = gradients.shape.matrix_elements();
  return view;
}

absl::Status CheckAlignment(const ExpertGradients& gradients) {
  absl::Status status = CheckAligned("home gate gradients", gradients.home_gate);
  if (status.ok()) status = CheckAligned("home up gradients", gradients.home_up);
  if (status.ok()) status = CheckAligned("home down gradients", gradients.home_down);
  return status;
}

}  // namespace

absl::Status QueueReduceGradients(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                                  const ExpertGradients& gradients) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kReduceGradients);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckGradients(rank, gradients); !status.ok()) return status;
  if (status = CheckAlignment(gradients); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kReduceGradients);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = gradients.shape.intermediate;
  descriptor.layer = gradients.layer;
  descriptor.dtype = static_cast<uint32_t>(Dtype::kFloat32);
  const OperationMark mark = MarkOf(rank, Operation::kReduceGradients);
  const EntryArguments entry =
      NoteEntry(rank, descriptor, 0, {.mark = mark, .sums_gradients_of = gradients.layer});
  const PlanView& plan_view = (*plan)->view();
  const GradientsView view = ViewOf(rank, gradients);
  int error = LaunchReduceGradients(rank.target(), rank.view, mark, entry, plan_view, view);
  NoteExit(rank);
  if (status = LaunchStatus(rank, error, "reduce gradients"); !status.ok()) return status;
  error = LaunchClearGradients(rank.local_target(), rank.view, plan_view, view);
  return LaunchStatus(rank, error, "clear gradients");
}

}  // namespace perigee
