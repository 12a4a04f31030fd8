#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/staged/staged_rank.h"

namespace perigee {
namespace {

// Brings rows and weights into the shard unless they are there, and sums duplicates.
absl::Status PrepareShard(StagedRank& rank, const StagedPlan& plan, const CombineInput& input) {
  rank.shape().live = LiveRows();
  const ShardView& own = rank.shape().own();
  const int32_t used = plan.facts().used_rows;
  absl::Status status;
  if (input.rows != own.rows) status = rank.device->CopyRows({own.rows}, {input.rows}, used);
  const bool moves_weights = input.row_weights != nullptr && input.row_weights != own.row_weights;
  if (status.ok() && moves_weights) {
    status = rank.device->CopyFloats({own.row_weights}, {input.row_weights}, used);
  }
  if (!status.ok()) return status;
  const ListsView& view = plan.view();
  return rank.device->SumRows({{own.rows, view.group_primaries},
                               own.rows,
                               view.group_ends,
                               view.group_rows,
                               static_cast<int32_t>(plan.lists().group_ends.size())});
}

absl::Status SendBack(StagedRank& rank, const StagedPlan& plan, bool weights) {
  const ShardView& own = rank.shape().own();
  const size_t row_bytes = rank.shape().row_bytes(1);
  const RowLists& lists = plan.lists();
  absl::Status status = rank.device->CopyRows(
      {rank.area.rows_out}, {own.rows, plan.view().received_rows}, lists.received_rows.size());
  auto outgoing = OutgoingByRank(rank.area.rows_out, lists.received_row_counts, row_bytes);
  auto incoming = IncomingByRank(rank.area.rows_in, lists.sent_token_counts, row_bytes);
  if (status.ok() && weights) {
    status = rank.device->CopyFloats({rank.area.weights_out},
                                     {own.row_weights, plan.view().received_routes},
                                     lists.received_routes.size());
    const auto out =
        OutgoingByRank(rank.area.weights_out, lists.received_route_counts, sizeof(float));
    const auto in = IncomingByRank(rank.area.weights_in, lists.sent_route_counts, sizeof(float));
    outgoing.insert(outgoing.end(), out.begin(), out.end());
    incoming.insert(incoming.end(), in.begin(), in.end());
  }
  if (!status.ok()) return status;
  return rank.collective->Transfer(std::move(outgoing), std::move(incoming));
}

absl::Status SumTokens(StagedRank& rank, const StagedPlan& plan, const CombineOutput& output) {
  const Geometry& geometry = rank.shape().geometry;
  const ListsView& view = plan.view();
  absl::Status status = rank.device->SumRows(
      {{output.hidden}, rank.area.rows_in, view.token_ends, view.token_rows, geometry.tokens});
  if (!status.ok() || output.route_weights == nullptr) return status;
  status = rank.device->CopyFloats({output.route_weights}, {}, geometry.routes());
  if (!status.ok()) return status;
  return rank.device->CopyFloats({output.route_weights, view.sent_routes}, {rank.area.weights_in},
                                 plan.lists().sent_routes.size());
}

// The caller must know that what it passed in place is gone.
absl::Status WithConsumedRows(const StagedRank& rank, const CombineInput& input,
                              const absl::Status& status) {
  if (status.ok() || input.rows != rank.shape().own().rows) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; the rows in the shard are undefined now"));
}

}  // namespace

absl::Status StagedCombine(StagedRank& rank, Sequence sequence, const PlanPtr& handle,
                           const CombineInput& input, const CombineOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kCombine);
  if (!status.ok()) return status;
  const auto plan = StagedPlanOf(rank.shape(), handle);
  if (!plan.ok()) return plan.status();
  status = CheckCombine(rank.shape(), (*plan)->facts(), input, output);
  if (status.ok()) status = rank.device->CheckAddress("rows", input.rows);
  if (status.ok()) status = rank.device->CheckAddress("output hidden", output.hidden);
  if (!status.ok()) return status;

  status = PrepareShard(rank, **plan, input);
  OperationDescriptor descriptor = rank.shape().Descriptor(Operation::kCombine);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  const bool weights = input.row_weights != nullptr;
  if (status.ok()) {
    status = rank.collective->Enter(descriptor, weights ? kEntryGathersWeights : 0);
  }
  if (status.ok()) status = SendBack(rank, **plan, weights);
  if (status.ok()) status = SumTokens(rank, **plan, output);
  if (status.ok()) status = rank.device->Wait();
  return WithConsumedRows(rank, input, status);
}

}  // namespace perigee
