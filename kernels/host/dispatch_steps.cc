#include "kernels/host/dispatch_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/algo/rows.h"
#include "kernels/host/local_rows.h"
#include "kernels/host/planning_exchange.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/duplicates.h"
#include "kernels/plan/routes.h"

namespace perigee {
namespace {

constexpr int64_t kTokenGrain = 32;

// Every row of every shard has one source, so no two ranks or threads store to the same place.
void SendSomeTokens(const HostRank& rank, absl::Span<const int32_t> dst, const DispatchInput& input,
                    int64_t begin, int64_t end) {
  const int32_t topk = rank.geometry.topk;
  for (int64_t i = begin * topk; i < end * topk; ++i) {
    if (IsMasked(dst[i])) continue;
    const int32_t raw = DecodeRow(dst[i]);
    const ShardView& shard = rank.shards[RankOf(raw, rank.logical_rows())];
    const int32_t row = LocalRow(raw, rank.logical_rows());
    if (input.route_weights != nullptr) shard.row_weights[row] = input.route_weights[i];
    if (input.hidden == nullptr || !IsPrimary(dst[i])) continue;
    CopyRow(RowAt(shard.rows, row, rank.hidden), RowAt(input.hidden, i / topk, rank.hidden),
            rank.hidden);
  }
}

void SendSomeLinks(const HostRank& rank, absl::Span<const int32_t> dst, int64_t begin,
                   int64_t end) {
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

absl::Status Damaged(HostRank& rank, const absl::Status& status) {
  ErrorRecord record;
  record.reason = static_cast<uint32_t>(AbortReason::kAborted);
  return rank.collective->Fail(record, std::string(status.message()));
}

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

absl::StatusOr<Planned> PlanTogether(HostRank& rank, Sequence sequence, Operation operation,
                                     const int32_t* topk_experts, int32_t token_count) {
  const OwnRoutes routes = ReadRoutes(rank, topk_experts, token_count);
  PublishRoutes(rank, sequence, routes);
  // Orders: peers' reads of this shard in the last combine, and their histograms, before the stores
  // and reads that follow.
  const absl::Status status =
      rank.collective->Enter(rank.Descriptor(operation), routes.bad_route ? kEntryBadRoute : 0);
  if (!status.ok()) return status;
  // All ranks leave at a bad route, unless the word on it was written over.
  if (routes.bad_route) {
    return Damaged(rank, absl::InternalError("what this rank said about a bad route is gone: its "
                                             "shard is damaged"));
  }
  absl::StatusOr<Planned> planned = MakePlan(rank, sequence, routes);
  if (!planned.ok()) return Damaged(rank, planned.status());
  return planned;
}

void SendTokens(const HostRank& rank, absl::Span<const int32_t> dst, const DispatchInput& input) {
  rank.pool->ParallelFor(input.token_count, kTokenGrain, [&](int64_t begin, int64_t end) {
    SendSomeTokens(rank, dst, input, begin, end);
  });
}

void SendLinks(const HostRank& rank, absl::Span<const int32_t> dst, int32_t token_count) {
  rank.pool->ParallelFor(token_count, kTokenGrain,
                         [&](int64_t begin, int64_t end) { SendSomeLinks(rank, dst, begin, end); });
}

absl::StatusOr<std::shared_ptr<const HostPlan>> Deliver(HostRank& rank, Sequence made_at,
                                                        int32_t token_count, const Planned& planned,
                                                        const DispatchOutput& output) {
  absl::StatusOr<DuplicateGroups> duplicates = ReadLinks(rank, planned.placement);
  if (!duplicates.ok()) return Damaged(rank, duplicates.status());
  ExpandDuplicates(rank, *duplicates);
  auto plan =
      std::make_shared<const HostPlan>(rank.TagOf(made_at), rank.rank, token_count,
                                       planned.placement, planned.dst, *std::move(duplicates));
  CopyOut(rank, plan->used_rows(), output);
  return plan;
}

void CopyOut(const HostRank& rank, int32_t used_rows, const DispatchOutput& output) {
  if (output.rows != nullptr) CopyRows(rank, output.rows, rank.own().rows, used_rows);
  if (output.row_weights != nullptr) {
    std::copy_n(rank.own().row_weights, used_rows, output.row_weights);
  }
}

}  // namespace perigee
