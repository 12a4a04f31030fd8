#include <utility>

#include "kernels/cuda/combine_launch.h"
#include "kernels/cuda/dispatch_launch.h"
#include "kernels/cuda/operations.h"

namespace perigee {
namespace {

absl::Status CheckAlignment(const CombineInput& input, const CombineOutput& output) {
  absl::Status status = CheckAligned("rows", input.rows);
  return status.ok() ? CheckAligned("output hidden", output.hidden) : status;
}

// Brings rows and weights into the shard unless they are there, and sums duplicates unless the
// combine does.
absl::Status QueueLocalSum(CudaRank& rank, const GatherArguments& gather,
                           const CombineInput& input) {
  const ShardView& own = rank.own();
  CopyArguments copy;
  if (input.rows != own.rows) {
    copy.rows_to = own.rows;
    copy.rows_from = input.rows;
  }
  if (input.row_weights != nullptr && input.row_weights != own.row_weights) {
    copy.weights_to = own.row_weights;
    copy.weights_from = input.row_weights;
  }
  int error = LaunchCopyUsedRows(rank.local_target(), rank.view, gather.plan, copy);
  if (error == 0 && !gather.sums_groups) {
    error = LaunchSumDuplicates(rank.local_target(), rank.view, gather.plan, gather.own_beside);
  }
  return LaunchStatus(rank, error, "local sum");
}

}  // namespace

absl::Status QueueCombine(CudaRank& rank, Sequence sequence, const PlanPtr& handle,
                          const CombineInput& input, const CombineOutput& output) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kCombine);
  if (!status.ok()) return status;
  const auto plan = CudaPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  status = CheckCombine(rank, (*plan)->facts(), input, output);
  if (!status.ok()) return status;
  if (status = CheckAlignment(input, output); !status.ok()) return status;

  rank.live = LiveRows();
  GatherArguments gather{(*plan)->view(), output.hidden};
  if (input.row_weights != nullptr) gather.route_weights = output.route_weights;
  // Alone, the kernel that sums groups may have more SMs.
  gather.sums_groups = rank.local_sms <= rank.sms->sms();
  gather.own_beside = rank.sums_beside;
  if (status = QueueLocalSum(rank, gather, input); !status.ok()) return status;
  OperationDescriptor descriptor = rank.Descriptor(Operation::kCombine);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  const OperationMark mark = MarkOf(rank, Operation::kCombine);
  QueuedOperation queued{
      .mark = mark, .consumes_rows = input.rows == rank.own().rows, .spoils_shard = true};
  const uint32_t flags = input.row_weights != nullptr ? kEntryGathersWeights : 0;
  const EntryArguments entry = NoteEntry(rank, descriptor, flags, std::move(queued));
  int error = 0;
  if (gather.own_beside) error = LaunchSumOwn(rank.keep_target(), rank.view, mark, gather.plan);
  if (error == 0) error = LaunchCombine(rank.target(), rank.view, mark, entry, gather);
  NoteExit(rank);
  return LaunchStatus(rank, error, "combine");
}

}  // namespace perigee
