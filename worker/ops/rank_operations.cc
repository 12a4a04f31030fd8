#include "worker/ops/rank_operations.h"

#include <utility>

#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

}  // namespace

Failure RankOperations::Left(const absl::Status& status) const {
  if (status.ok()) return Failure();
  absl::optional<ErrorRecord> record = site_.data_path.last_error();
  if (record && record->reason == static_cast<uint32_t>(AbortReason::kNone)) record.reset();
  if (record && site_.counters != nullptr) site_.counters->CountFailure(ReasonOf(*record));
  return Failure{status, record};
}

Failure RankOperations::Decline(Sequence sequence, bool writes_shard) {
  if (writes_shard && site_.objects.CheckShardFree().ok()) site_.objects.RowsUndefined(sequence);
  return Left(site_.data_path.Decline(sequence));
}

RankOperations::Dispatched RankOperations::Dispatch(Sequence sequence, const DispatchInput& input,
                                                    bool has_weights, PlanPtr saved,
                                                    const DispatchOutput& output) {
  absl::Status status = CheckShardFree();
  if (!status.ok()) return {Refused(std::move(status)), nullptr};
  PlanPtr plan = std::move(saved);
  if (plan) {
    status = site_.data_path.DispatchWithPlan(sequence, plan, input, output);
  } else {
    absl::StatusOr<PlanPtr> made = site_.data_path.Dispatch(sequence, input, output);
    status = made.status();
    if (made.ok()) plan = *std::move(made);
  }
  if (!status.ok()) {
    Failure failure = Left(status);
    if (failure.record) site_.objects.RowsUndefined(sequence);
    return {std::move(failure), nullptr};
  }
  site_.objects.RowsDispatched(sequence, plan->tag(), has_weights);
  return {Failure(), std::move(plan)};
}

ExpertWeights RankOperations::Weights(int32_t layer, uint64_t version) const {
  return ExpertWeights{layer, version, site_.memory.homes(layer), site_.memory.slots(),
                       site_.shape.weights()};
}

Failure RankOperations::Prefetch(Sequence sequence, const PlanPtr& plan, int32_t layer,
                                 uint64_t version, bool beside) {
  const absl::Status home = site_.check_home ? site_.check_home(layer) : absl::OkStatus();
  if (!home.ok()) return Refused(WithReason(home, kReasonStaleWeights));
  const ExpertWeights weights = Weights(layer, version);
  return Left(beside ? site_.data_path.PrefetchWeightsBeside(sequence, plan, weights)
                     : site_.data_path.PrefetchWeights(sequence, plan, weights));
}

Failure RankOperations::RunExperts(const PlanPtr& plan, int32_t layer, uint64_t version,
                                   bool weighted) {
  absl::Status status = site_.objects.CheckRowsForExperts(*plan, weighted);
  if (!status.ok()) return Refused(status);
  RunExpertsInput input;
  input.rows = site_.data_path.rows();
  input.row_weights = weighted ? site_.data_path.row_weights() : nullptr;
  input.output = site_.data_path.rows();
  Failure failure = Left(site_.data_path.RunExperts(plan, Weights(layer, version), input));
  if (failure.status.ok()) {
    site_.objects.RowsComputed();
  } else if (failure.record) {
    site_.objects.RowsUndefined(site_.objects.last_sequence());
  } else if (failure.status.code() == absl::StatusCode::kFailedPrecondition) {
    failure.status = WithReason(failure.status, kReasonStaleWeights);
  }
  return failure;
}

Failure RankOperations::Combine(Sequence sequence, const PlanPtr& plan, CombineInput input,
                                const CombineOutput& output) {
  const bool gathers = output.route_weights != nullptr;
  const bool shard_weights = gathers && input.row_weights == nullptr;
  const bool needs_weights = shard_weights && !input.own_weights;
  const bool uses_shard = input.rows == nullptr || needs_weights;
  absl::Status status =
      uses_shard ? site_.objects.CheckRowsForCombine(*plan, needs_weights) : CheckShardFree();
  if (!status.ok()) return Refused(status);
  if (input.rows == nullptr) input.rows = site_.data_path.rows();
  if (shard_weights) input.row_weights = site_.data_path.row_weights();
  Failure failure = Left(site_.data_path.Combine(sequence, plan, input, output));
  if (failure.status.ok()) {
    site_.objects.RowsConsumed(sequence);
  } else if (failure.record) {
    site_.objects.RowsUndefined(sequence);
  }
  return failure;
}

Failure RankOperations::ReduceGradients(Sequence sequence, const PlanPtr& plan, int32_t layer) {
  return Left(site_.data_path.ReduceGradients(sequence, plan, site_.memory.gradients(layer)));
}

Failure RankOperations::EnterProbe(Sequence sequence) {
  absl::Status status = CheckShardFree();
  return status.ok() ? Barrier(sequence) : Refused(std::move(status));
}

Failure RankOperations::ProbeCopy(CopyProbe probe, int64_t rows) {
  absl::Status status = CheckShardFree();
  if (!status.ok()) return Refused(std::move(status));
  Failure failure = Left(site_.data_path.ProbeCopy(probe, rows));
  if (!failure.status.ok() && !failure.record) return failure;
  if (rows == 0) return failure;
  // Where the next rank's rows are meant, this rank's own are the previous one's to overwrite.
  site_.objects.RowsOverwritten(site_.objects.last_sequence());
  return failure;
}

}  // namespace perigee
