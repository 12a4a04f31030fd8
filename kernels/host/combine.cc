#include "kernels/host/combine.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/algo/rows.h"
#include "kernels/host/local_rows.h"
#include "kernels/host/sum_rows.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

constexpr int64_t kTokenGrain = 32;

bool IsAlias(const HostRank& rank, const CombineInput& input) {
  return input.rows == rank.own().rows;
}
bool IsWeightsAlias(const HostRank& rank, const CombineInput& input) {
  return input.row_weights == rank.own().row_weights;
}

void PrepareShard(HostRank& rank, const HostPlan& plan, const CombineInput& input) {
  rank.live = LiveRows();
  const ShardView& own = rank.own();
  if (!IsAlias(rank, input)) CopyRows(rank, own.rows, input.rows, plan.used_rows());
  if (input.row_weights != nullptr && !IsWeightsAlias(rank, input)) {
    std::copy_n(input.row_weights, plan.used_rows(), own.row_weights);
  }
  SumDuplicates(rank, plan.duplicates());
}

// The rows of token `token`, [0, count) of `terms`, in order of k: its primaries on every rank.
int32_t PrimaryRows(const HostRank& rank, const HostPlan& plan, int64_t token,
                    std::array<const BFloat16*, kMaxTopk>& terms) {
  const int32_t topk = rank.geometry.topk;
  int32_t count = 0;
  for (int32_t k = 0; k < topk; ++k) {
    const int32_t dst = plan.dst()[token * topk + k];
    if (!IsPrimary(dst)) continue;
    const ShardView& shard = rank.shards[RankOf(dst, rank.logical_rows())];
    terms[count++] = RowAt(shard.rows, LocalRow(dst, rank.logical_rows()), rank.hidden);
  }
  return count;
}

void SumTokens(const HostRank& rank, const HostPlan& plan, BFloat16* hidden, int64_t begin,
               int64_t end) {
  std::array<const BFloat16*, kMaxTopk> terms;
  for (int64_t token = begin; token < end; ++token) {
    BFloat16* const out = RowAt(hidden, token, rank.hidden);
    // Routes of tokens past the count are masked in dst: those tokens have no rows either.
    const int32_t count = PrimaryRows(rank, plan, token, terms);
    if (count == 0) {
      ZeroRows(out, 1, rank.hidden);
    } else {
      HostSumRows(terms.data(), count, rank.hidden, out);
    }
  }
}

void GatherWeights(const HostRank& rank, const HostPlan& plan, float* route_weights, int64_t begin,
                   int64_t end) {
  for (int64_t i = begin * rank.geometry.topk; i < end * rank.geometry.topk; ++i) {
    route_weights[i] = 0.0f;
    if (IsMasked(plan.dst()[i])) continue;
    const int32_t raw = DecodeRow(plan.dst()[i]);
    const ShardView& shard = rank.shards[RankOf(raw, rank.logical_rows())];
    route_weights[i] = shard.row_weights[LocalRow(raw, rank.logical_rows())];
  }
}

// The caller must know that what it passed in place is gone.
absl::Status WithConsumedRows(const HostRank& rank, const CombineInput& input,
                              const absl::Status& status) {
  if (!IsAlias(rank, input)) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; the rows in the shard are undefined now"));
}

}  // namespace

absl::Status HostCombine(HostRank& rank, Sequence sequence, const PlanPtr& handle,
                         const CombineInput& input, const CombineOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kCombine);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckCombine(rank, (*plan)->facts(), input, output); !status.ok()) return status;

  PrepareShard(rank, **plan, input);
  OperationDescriptor descriptor = rank.Descriptor(Operation::kCombine);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  // Orders: every rank's staging and local sums in its shard before the reads of it below.
  status = rank.collective->Enter(descriptor, input.row_weights ? kEntryGathersWeights : 0);
  if (!status.ok()) return WithConsumedRows(rank, input, status);

  rank.pool->ParallelFor(rank.geometry.tokens, kTokenGrain, [&](int64_t begin, int64_t end) {
    SumTokens(rank, **plan, output.hidden, begin, end);
    if (output.route_weights) GatherWeights(rank, **plan, output.route_weights, begin, end);
  });
  // Orders: the reads above before whatever any rank writes to its shard next.
  if (status = rank.collective->Exit(); !status.ok()) return WithConsumedRows(rank, input, status);
  return absl::OkStatus();
}

}  // namespace perigee
