#include <algorithm>
#include <utility>

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

// Rows after the first product, and how the rows are cut into tiles.
struct ExpertScratch {
  size_t h = 0;
  size_t tiles = 0;
  size_t tile_count = 0;
  size_t size_bytes = 0;

  static ExpertScratch Of(const CudaRank& rank, const WeightsShape& shape) {
    LayoutWalk walk;
    ExpertScratch scratch;
    scratch.tile_count = walk.Place<int32_t>(1);
    scratch.tiles = walk.Place<ExpertTile>(MaxTiles(rank.geometry));
    scratch.h = walk.Place<BFloat16>(int64_t{rank.logical_rows()} * shape.intermediate);
    scratch.size_bytes = walk.size_bytes(256);
    return scratch;
  }
};

absl::StatusOr<std::byte*> TakeScratch(CudaRank& rank, size_t size_bytes) {
  if (rank.expert_scratch == nullptr || rank.expert_scratch->size_bytes() < size_bytes) {
    rank.expert_scratch.reset();  // waits for the kernels that use it
    auto memory = PrivateDeviceMemory::Allocate(rank.device, size_bytes);
    if (!memory.ok()) return memory.status();
    rank.expert_scratch = *std::move(memory);
  }
  return rank.expert_scratch->data();
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

  const ExpertScratch parts = ExpertScratch::Of(rank, weights.shape);
  const absl::StatusOr<std::byte*> scratch = TakeScratch(rank, parts.size_bytes);
  if (!scratch.ok()) return scratch.status();
  ExpertsArguments arguments;
  arguments.plan = (*plan)->view();
  arguments.weights = ViewOf(rank, weights);
  arguments.rows = input.rows;
  arguments.row_weights = input.row_weights;
  arguments.output = input.output;
  arguments.h = reinterpret_cast<BFloat16*>(*scratch + parts.h);
  arguments.tiles = reinterpret_cast<ExpertTile*>(*scratch + parts.tiles);
  arguments.tile_count = reinterpret_cast<int32_t*>(*scratch + parts.tile_count);
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
