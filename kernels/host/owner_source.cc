#include "kernels/host/owner_source.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/algo/rows.h"
#include "kernels/host/dispatch_steps.h"
#include "kernels/host/local_rows.h"
#include "kernels/host/source_rows.h"
#include "kernels/plan/destination.h"
#include "kernels/rank/plan_output.h"
#include "kernels/rank/source_checks.h"

namespace perigee {
namespace {

constexpr int64_t kPullGrain = 32;
constexpr int64_t kWeightGrain = 1024;

class HostSource final : public SourceHandle {
 public:
  HostSource(const HostRank& rank, Sequence sequence, int32_t token_count, SourceRows rows,
             std::shared_ptr<const HostPlan> plan)
      : tag_(rank.TagOf(sequence)),
        rank_(rank.rank),
        living_(rank.source),
        token_count_(token_count),
        rows_(std::move(rows)),
        host_plan_(std::move(plan)),
        plan_(host_plan_),
        view_(MakeSourceView(rank)) {
    view_.origins = rows_.origins.data();
  }

  ObjectTag tag() const override { return tag_; }
  RankId rank() const override { return rank_; }
  int32_t token_count() const override { return token_count_; }
  const PlanPtr& plan() const override { return plan_; }
  const SourceRows& rows() const { return rows_; }
  const HostPlan& host_plan() const { return *host_plan_; }

 private:
  const LivingSource& living() const override { return living_; }
  const SourceView& view() const override { return view_; }

  const ObjectTag tag_;
  const RankId rank_;
  const LivingSource living_;
  const int32_t token_count_;
  const SourceRows rows_;
  const std::shared_ptr<const HostPlan> host_plan_;
  const PlanPtr plan_;
  SourceView view_;
};

absl::StatusOr<const HostSource*> HostSourceOf(const SourcePtr& source) {
  if (source == nullptr) return absl::InvalidArgumentError("source view is null");
  const auto* host_source = dynamic_cast<const HostSource*>(source.get());
  if (host_source != nullptr) return host_source;
  return absl::InvalidArgumentError("source view was made by another backend, expected host");
}

// Every row of this shard is written by this rank alone.
void PullRows(const HostRank& rank, const SourceRows& rows) {
  BFloat16* const to = rank.own().rows;
  rank.pool->ParallelFor(
      static_cast<int64_t>(rows.pulls.size()), kPullGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const SourcePull& pull = rows.pulls[i];
          BFloat16* const first = RowAt(to, rows.places[pull.start], rank.hidden);
          CopyRow(first, RowAt(rank.sources[pull.rank].hidden, pull.token, rank.hidden),
                  rank.hidden);
          for (int32_t j = pull.start + 1; j < pull.start + pull.count; ++j) {
            CopyRow(RowAt(to, rows.places[j], rank.hidden), first, rank.hidden);
          }
        }
      });
}

void PullWeights(const HostRank& rank, const SourceRows& rows) {
  const int32_t routes = rank.geometry.routes();
  rank.pool->ParallelFor(static_cast<int64_t>(rows.places.size()), kWeightGrain,
                         [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             const int32_t row = rows.places[i];
                             const int32_t origin = DecodeRow(rows.origins[row]);
                             rank.own().row_weights[row] =
                                 rank.sources[origin / routes].route_weights[origin % routes];
                           }
                         });
}

// The view that lives, if one does, is not of what lies there then.
void StoreSource(HostRank& rank, const SourceInput& input) {
  if (!StoresSource(rank, input)) return;
  const SourceShardView& own = rank.sources[rank.rank.value];
  rank.source.Set(Sequence());
  if (input.hidden != nullptr && input.hidden != own.hidden) {
    CopyRows(rank, own.hidden, input.hidden, input.token_count);
  }
  if (input.route_weights != nullptr && input.route_weights != own.route_weights) {
    std::copy_n(input.route_weights, int64_t{input.token_count} * rank.geometry.topk,
                own.route_weights);
  }
}

}  // namespace

absl::StatusOr<SourcePtr> HostPrepareSource(HostRank& rank, Sequence sequence,
                                            const SourceInput& input) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kPrepareSource);
  if (!status.ok()) return status;
  if (status = CheckPrepareSource(rank, input); !status.ok()) return status;
  StoreSource(rank, input);
  // Its entry barrier orders what ranks have written into their source shards before the reads that
  // follow, and peers' reads of destinations by the last view before they are written anew.
  absl::StatusOr<Planned> planned = PlanTogether(rank, sequence, Operation::kPrepareSource,
                                                 input.topk_experts, input.token_count);
  if (!planned.ok()) return planned.status();
  rank.source.Set(Sequence());
  std::copy(planned->dst.begin(), planned->dst.end(), rank.sources[rank.rank.value].dst);
  // Orders: every rank's destinations before the reads below.
  if (status = rank.collective->Exit(); !status.ok()) return status;
  absl::StatusOr<SourceRows> rows = ReadSourceRows(rank, *planned);
  if (!rows.ok()) {
    ErrorRecord record;
    record.reason = static_cast<uint32_t>(AbortReason::kAborted);
    return rank.collective->Fail(record, std::string(rows.status().message()));
  }
  auto plan = std::make_shared<const HostPlan>(rank.TagOf(sequence), rank.rank, input.token_count,
                                               planned->placement, std::move(planned->dst),
                                               DuplicatesOf(*rows));
  if (input.plan.sequence != nullptr) WritePlan(plan->Tensors(), sequence, input.plan);
  rank.source.Set(sequence);
  return std::make_shared<const HostSource>(rank, sequence, input.token_count, *std::move(rows),
                                            std::move(plan));
}

absl::StatusOr<PlanPtr> HostMaterialise(HostRank& rank, Sequence sequence, const SourcePtr& handle,
                                        const DispatchOutput& output) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kMaterialise);
  if (!status.ok()) return status;
  const absl::StatusOr<const HostSource*> source = HostSourceOf(handle);
  if (!source.ok()) return source.status();
  if (status = CheckMaterialise(rank, **source, output); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kMaterialise);
  descriptor.plan_sequence = (*source)->tag().sequence.value;
  // Orders: peers' reads of this shard in the last combine before the stores below.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  rank.live = LiveRows();
  PullRows(rank, (*source)->rows());
  PullWeights(rank, (*source)->rows());
  ZeroPadding(rank, (*source)->host_plan().zero_fill_ranges());
  // Orders: every rank's reads of source shards before what their owners do next.
  if (status = rank.collective->Exit(); !status.ok()) return status;

  rank.live = LiveAfterMaterialise(**source);
  CopyOut(rank, (*source)->host_plan().used_rows(), output);
  return (*source)->plan();
}

}  // namespace perigee
