#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/expert_scratch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/prefetch_launch.h"
#include "kernels/cuda/run_experts_launch.h"
#include "kernels/device/caller_stream.h"

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

// What a prefetch brings to its entry barrier.
struct CheckedPrefetch {
  std::shared_ptr<const CudaPlan> plan;
  OperationDescriptor descriptor;
  OperationMark mark;
};

absl::StatusOr<CheckedPrefetch> CheckPrefetch(CudaRank& rank, Sequence sequence,
                                              const PlanPtr& handle, const ExpertWeights& weights) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kPrefetchWeights);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckWeights(rank, weights); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kPrefetchWeights);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = weights.shape.intermediate;
  descriptor.dtype = static_cast<uint32_t>(DtypeOf(weights.shape.format));
  descriptor.layer = weights.layer;
  descriptor.weights_version = weights.version;
  return CheckedPrefetch{*plan, descriptor, MarkOf(rank, Operation::kPrefetchWeights)};
}

QueuedOperation QueuedPrefetch(const OperationMark& mark, const ExpertWeights& weights) {
  return {.mark = mark, .weights = {weights.layer, weights.version}};
}

absl::Status QueueStaleSlot(CudaRank& rank, const CudaPlan& plan) {
  const int error =
      LaunchReportStaleSlot(rank.target(), rank.view, rank.queued.back().mark, plan.view());
  return LaunchStatus(rank, error, "prefetch");
}

// Whether what was queued last is the dispatch that makes the plan.
bool IsBeingMade(const CudaRank& rank, const CudaPlan& plan) {
  if (rank.queued.empty()) return false;
  const OperationMark& last = rank.queued.back().mark;
  return last.operation == static_cast<uint32_t>(Operation::kDispatch) &&
         last.sequence == plan.tag().sequence.value;
}

// Makes the lane wait for what the rank's stream holds now; where that ends with the dispatch that
// makes the plan, for the plan alone: what was ahead of the dispatch has ended then.
absl::Status BeginBeside(CudaRank& rank, const CudaPlan& plan, bool with_plan) {
  CUstream_st* const lane = (*rank.lane.stream)->get();
  if (with_plan) {
    return WaitForWord(rank.device, lane, &rank.view.grid->planned,
                       PlannedWord(plan.tag().sequence.value, /*goes_on=*/false));
  }
  absl::Status status = rank.lane.begin->Record(rank.target().stream);
  return status.ok() ? rank.lane.begin->MakeWait(lane) : status;
}

absl::Status FillSlotsBeside(CudaRank& rank, const OperationMark& mark, const CudaPlan& plan,
                             const ExpertWeights& weights, bool with_plan) {
  LaunchTarget target = rank.target();
  target.stream = (*rank.lane.stream)->get();
  FillPace pace;
  if (with_plan) pace.made_by = plan.tag().sequence.value;
  // Where the dispatch has SMs of its own for links, it waits for these.
  if (with_plan && rank.keep_sms > 0) pace.early_blocks = EarlyBlocks(target.sms);
  const int error = LaunchFillSlots(target, rank.view, mark, pace, plan.view(),
                                    ViewOf(rank, weights), rank.bad_slots);
  absl::Status status = LaunchStatus(rank, error, "prefetch");
  if (!status.ok()) return status;
  return rank.lane.end->Record(target.stream);
}

}  // namespace

absl::Status QueuePrefetchWeights(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                                  const ExpertWeights& weights) {
  const auto prefetch = CheckPrefetch(rank, sequence, handle, weights);
  if (!prefetch.ok()) return prefetch.status();
  // Copies that run beside are of the same slots.
  absl::Status status = WaitForBeside(rank);
  if (!status.ok()) return status;
  const EntryArguments entry =
      NoteEntry(rank, prefetch->descriptor, 0, QueuedPrefetch(prefetch->mark, weights));
  const int error = LaunchPrefetch(rank.target(), rank.view, prefetch->mark, entry,
                                   prefetch->plan->view(), ViewOf(rank, weights), rank.bad_slots);
  NoteExit(rank);
  return LaunchStatus(rank, error, "prefetch");
}

absl::Status QueuePrefetchBeside(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                                 const ExpertWeights& weights) {
  if (rank.beside) {
    return absl::InvalidArgumentError(absl::StrCat("the prefetch of sequence ",
                                                   rank.beside->sequence.value,
                                                   " runs beside, expected a join before another"));
  }
  if (rank.lane.stream == nullptr) {
    auto lane = MakeLane(rank.device, StreamPriority::kNormal);
    if (!lane.ok()) return lane.status();
    rank.lane = *std::move(lane);
  }
  auto prefetch = CheckPrefetch(rank, sequence, handle, weights);
  if (!prefetch.ok()) return prefetch.status();
  // Orders: the loading of every home block before the reads of it that follow; with the plan, the
  // entry of its dispatch does.
  const bool with_plan = IsBeingMade(rank, *prefetch->plan);
  absl::Status status =
      QueueEntry(rank, prefetch->descriptor, 0, QueuedPrefetch(prefetch->mark, weights));
  // Noted first: whatever reaches the lane is waited for.
  rank.beside = PrefetchBeside{sequence, prefetch->plan, {weights.layer, weights.version}};
  if (status.ok()) status = BeginBeside(rank, *prefetch->plan, with_plan);
  if (status.ok()) {
    status = FillSlotsBeside(rank, prefetch->mark, *prefetch->plan, weights, with_plan);
  }
  if (!status.ok()) {
    rank.progress->Abort(-1, std::string(status.message()));
    return status;
  }
  // Orders nothing of the copies: what is entered behind the join does.
  return QueueExit(rank);
}

absl::Status QueueJoin(CudaRank& rank) {
  absl::Status status = rank.progress->BeginLocal(Operation::kPrefetchWeights);
  if (!status.ok()) return status;
  if (status = WaitForBeside(rank); !status.ok()) return status;
  const PrefetchBeside beside = *std::exchange(rank.beside, absl::nullopt);
  OperationMark mark = MarkOf(rank, Operation::kPrefetchWeights);
  mark.sequence = beside.sequence.value;
  rank.queued.push_back({.mark = mark,
                         .live_before = rank.shard_live(),
                         .source_before = rank.source.sequence(),
                         .weights = beside.weights});
  return QueueStaleSlot(rank, *beside.plan);
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
  const bool in_shard = input.output == rank.shard_rows();
  rank.queued.push_back({.mark = mark,
                         .spoils_shard = in_shard,
                         .live_before = rank.shard_live(),
                         .source_before = rank.source.sequence(),
                         .weights = {weights.layer, weights.version}});
  const int error = LaunchRunExperts(rank.target(), rank.view, mark, arguments);
  if (status = LaunchStatus(rank, error, "run experts"); !status.ok()) return status;
  // In place what was dispatched has become expert output of the same plan.
  if (in_shard) {
    rank.shard_live().rows = (*plan)->tag().sequence;
    rank.shard_live().target = Sequence(0);
  }
  return absl::OkStatus();
}

}  // namespace perigee
