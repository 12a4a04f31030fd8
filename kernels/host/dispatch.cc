#include "kernels/host/dispatch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/algo/rows.h"
#include "kernels/host/local_rows.h"
#include "kernels/host/planning_exchange.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/duplicates.h"
#include "kernels/plan/placement.h"
#include "kernels/plan/routes.h"

namespace perigee {
namespace {

constexpr int64_t kTokenGrain = 32;

// Sends tokens [begin, end): rows of primaries and weights of all routes to any rank. Every row of
// every shard has one source, so no two ranks or threads store to the same place.
void SendTokens(const HostRank& rank, absl::Span<const int32_t> dst, const DispatchInput& input,
                int64_t begin, int64_t end) {
  const int32_t topk = rank.geometry.topk;
  for (int64_t i = begin * topk; i < end * topk; ++i) {
    if (IsMasked(dst[i])) continue;
    const int32_t raw = DecodeRow(dst[i]);
    const ShardView& shard = rank.shards[RankOf(raw, rank.logical_rows())];
    const int32_t row = LocalRow(raw, rank.logical_rows());
    if (input.route_weights != nullptr) shard.row_weights[row] = input.route_weights[i];
    if (!IsPrimary(dst[i])) continue;
    CopyRow(RowAt(shard.rows, row, rank.hidden), RowAt(input.hidden, i / topk, rank.hidden),
            rank.hidden);
  }
}

// For every route of tokens [begin, end): whose duplicate its row is, for the owner to read.
void SendLinks(const HostRank& rank, absl::Span<const int32_t> dst, int64_t begin, int64_t end) {
  const int32_t topk = rank.geometry.topk;
  for (int64_t token = begin; token < end; ++token) {
    const int32_t* token_dst = dst.data() + token * topk;
    for (int32_t k = 0; k < topk; ++k) {
      if (IsMasked(token_dst[k])) continue;
      const int32_t raw = DecodeRow(token_dst[k]);
      const ShardView& shard = rank.shards[RankOf(raw, rank.logical_rows())];
      const int32_t row = LocalRow(raw, rank.logical_rows());
      const DuplicateLink link = LinkOf(token_dst, k, rank.logical_rows());
      shard.duplicate_primary[row] = link.primary;
      shard.duplicate_ordinal[row] = link.ordinal;
    }
  }
}

// After the rows are complete: copies for a caller that does not read the shard in place.
void CopyOut(const HostRank& rank, int32_t used_rows, const DispatchOutput& output) {
  if (output.rows != nullptr) CopyRows(rank, output.rows, rank.own().rows, used_rows);
  if (output.row_weights != nullptr) {
    std::copy_n(rank.own().row_weights, used_rows, output.row_weights);
  }
}

absl::Status Damaged(HostRank& rank, const absl::Status& status) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  return rank.collective->Fail(record, std::string(status.message()));
}

struct Planned {
  Placement placement;
  std::vector<int32_t> dst;
};

absl::StatusOr<Planned> MakePlan(const HostRank& rank, Sequence sequence, const OwnRoutes& routes) {
  absl::StatusOr<std::vector<int32_t>> counts = CollectCounts(rank, sequence, routes);
  if (!counts.ok()) return counts.status();
  Planned planned{Place(rank.geometry, *counts), std::vector<int32_t>(rank.geometry.routes())};
  AssignRoutes(planned.placement, rank.rank, *counts, routes.topk_experts, routes.token_count,
               absl::MakeSpan(planned.dst));
  return planned;
}

absl::StatusOr<DuplicateGroups> ReadLinks(const HostRank& rank, const Placement& placement) {
  const ShardView& own = rank.own();
  return BuildDuplicateGroups(placement.cu_seqlens_of(rank.rank), placement.zero_fill_of(rank.rank),
                              absl::MakeConstSpan(own.duplicate_primary, rank.logical_rows()),
                              absl::MakeConstSpan(own.duplicate_ordinal, rank.logical_rows()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const HostPlan>> HostDispatch(HostRank& rank, Sequence sequence,
                                                             const DispatchInput& input,
                                                             const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatch);
  if (!status.ok()) return status;
  if (status = CheckDispatch(rank, input, output); !status.ok()) return status;

  const OwnRoutes routes = ReadRoutes(rank, input.topk_experts, input.token_count);
  PublishRoutes(rank, sequence, routes);
  // Orders: peers' reads of this shard in the last combine, and their histograms, before the stores
  // and reads below.
  status = rank.collective->Enter(rank.Descriptor(Operation::kDispatch),
                                  routes.bad_route ? kEntryBadRoute : 0);
  if (!status.ok()) return status;
  // All ranks leave at a bad route, unless the word on it was written over.
  if (routes.bad_route) {
    return Damaged(rank, absl::InternalError("what this rank said about a bad route is gone: its "
                                             "shard is damaged"));
  }

  const absl::StatusOr<Planned> planned = MakePlan(rank, sequence, routes);
  if (!planned.ok()) return Damaged(rank, planned.status());
  const LiveRows before = std::exchange(rank.live, LiveRows());
  rank.pool->ParallelFor(input.token_count, kTokenGrain, [&](int64_t begin, int64_t end) {
    SendTokens(rank, planned->dst, input, begin, end);
    SendLinks(rank, planned->dst, begin, end);
  });
  ZeroPadding(rank, planned->placement.zero_fill_of(rank.rank));
  // Orders: every rank's stores into this shard before the reads below and the caller's.
  if (status = rank.collective->Exit(); !status.ok()) return status;

  absl::StatusOr<DuplicateGroups> duplicates = ReadLinks(rank, planned->placement);
  if (!duplicates.ok()) return Damaged(rank, duplicates.status());
  ExpandDuplicates(rank, *duplicates);
  auto plan =
      std::make_shared<const HostPlan>(rank.TagOf(sequence), rank.rank, input.token_count,
                                       planned->placement, planned->dst, *std::move(duplicates));
  rank.live = LiveAfterDispatch(sequence, input, before);
  CopyOut(rank, plan->used_rows(), output);
  return plan;
}

absl::Status HostDispatchWithPlan(HostRank& rank, Sequence sequence, const PlanPtr& handle,
                                  const DispatchInput& input, const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kDispatchWithPlan);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckDispatchWithPlan(rank, (*plan)->facts(), input, output); !status.ok())
    return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kDispatchWithPlan);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  // Orders: peers' reads of this shard in the last combine before the stores below.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  const LiveRows before = std::exchange(rank.live, LiveRows());
  rank.pool->ParallelFor(input.token_count, kTokenGrain, [&](int64_t begin, int64_t end) {
    SendTokens(rank, (*plan)->dst(), input, begin, end);
  });
  ZeroPadding(rank, (*plan)->zero_fill_ranges());
  // Orders: every rank's stores into this shard before the reads below and the caller's.
  if (status = rank.collective->Exit(); !status.ok()) return status;

  ExpandDuplicates(rank, (*plan)->duplicates());
  rank.live = LiveAfterDispatch((*plan)->tag().sequence, input, before);
  CopyOut(rank, (*plan)->used_rows(), output);
  return absl::OkStatus();
}

}  // namespace perigee
