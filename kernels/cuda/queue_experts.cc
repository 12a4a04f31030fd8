#include <algorithm>
#include <utility>

#include "kernels/cuda/expert_scratch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/prefetch_launch.h"
#include "kernels/cuda/run_experts_launch.h"

namespace perigee {
namespace {

WeightsView ViewOf(const CudaRank& rank, const ExpertWeights& weights) {
  WeightsView view;
  std::copy(weights.home.begin(), weights.home.end(), view.home);
  view.slots = weights.slots;
  view.home_layout = WeightsLayout::Home(weights.shape, rank.geometry.experts_per_rank());
  view.slot_layout = WeightsLayout::Slots(weights.shape, rank.geometry.slots);
  view.shape = weights.shape;
  view.version = weights.version;
  view.layer = weights.layer;
  return view;
}

}  // namespace

absl::Status QueuePrefetchWeights(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                                  const ExpertWeights& weights) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kPrefetchWeights);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckWeights(rank, weights); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kPrefetchWeights);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = weights.shape.intermediate;
  descriptor.layer = weights.layer;
  descriptor.weights_version = weights.version;
  const OperationMark mark = MarkOf(rank, Operation::kPrefetchWeights);
  QueuedOperation queued{.mark = mark, .weights = {weights.layer, weights.version}};
  // Orders: the loading of every home block before the reads of it below.
  if (status = QueueEntry(rank, descriptor, 0, std::move(queued)); !status.ok()) return status;
  const PlanView& view = (*plan)->view();
  int error =
      LaunchFillSlots(rank.target(), rank.view, view, ViewOf(rank, weights), rank.slot_is_good);
  if (status = LaunchStatus(rank, error, "prefetch"); !status.ok()) return status;
  // Orders: the reads above before any home block is loaded anew.
  if (status = QueueExit(rank); !status.ok()) return status;
  error = LaunchReportStaleSlot(rank.target(), rank.view, mark, view);
  return LaunchStatus(rank, error, "prefetch");
}

absl::Status QueueRunExperts(CudaRank& rank, const PlanPtr& handle, const ExpertWeights& weights,
                             const RunExpertsInput& input) {
  absl::Status status = rank.progress->BeginLocal(Operation::kRunExperts);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  status = CheckRunExperts(rank, (*plan)->facts(), weights, input);
  if (!status.ok()) return status;
  if (status = CheckAligned("rows", input.rows); !status.ok()) return status;
  if (status = CheckAligned("output", input.output); !status.ok()) return status;

  const absl::StatusOr<ExpertScratch> scratch = TakeExpertScratch(rank, weights.shape.intermediate);
  if (!scratch.ok()) return scratch.status();
  ExpertsArguments arguments;
  arguments.plan = (*plan)->view();
  arguments.weights = ViewOf(rank, weights);
  arguments.rows = input.rows;
  arguments.row_weights = input.row_weights;
  arguments.output = input.output;
  arguments.h = scratch->h;
  arguments.tiles = scratch->tiles;
  arguments.tile_count = scratch->tile_count;
  const OperationMark mark = MarkOf(rank, Operation::kRunExperts);
  const bool in_shard = input.output == rank.own().rows;
  rank.queued.push_back({.mark = mark,
                         .spoils_shard = in_shard,
                         .live_before = rank.live,
                         .weights = {weights.layer, weights.version}});
  const int error = LaunchRunExperts(rank.target(), rank.view, mark, arguments);
  if (status = LaunchStatus(rank, error, "run experts"); !status.ok()) return status;
  // In place: what was dispatched has become expert output of the same plan.
  if (in_shard) rank.live.rows = (*plan)->tag().sequence;
  return absl::OkStatus();
}

}  // namespace perigee
