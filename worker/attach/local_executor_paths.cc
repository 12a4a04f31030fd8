// The ways of LocalExecutor to get rows into the shard that are not a dispatch: direct publication,
// and an owner-sharded source.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/attach/local_executor.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

// Of the target that becomes a plan of this number, and of the view whose plan has it.
std::string TargetName(LocalPlanId plan) { return absl::StrCat(plan.value); }

}  // namespace

Failure LocalExecutor::Operate(const LocalPrepareDispatch& operation, Sequence sequence) {
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  return operations_.PrepareDispatch(sequence, TargetName(operation.plan),
                                     {arena_.topk_experts, operation.token_count, arena_.plan});
}

Failure LocalExecutor::Operate(const LocalPreparePublication& operation, Sequence) {
  std::string token;
  if (operation.token) token.assign(operation.token->begin(), operation.token->end());
  return operations_.PreparePublication(
      TargetName(operation.plan), operation.route_weights ? arena_.route_weights : nullptr,
      operation.route_weights, operation.token ? &token : nullptr);
}

Failure LocalExecutor::Operate(const LocalStoreRows& operation, Sequence) {
  return operations_.StoreRows(TargetName(operation.plan), arena_.hidden);
}

Failure LocalExecutor::Operate(const LocalPublish& operation, Sequence sequence) {
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  RankOperations::Dispatched published = operations_.Publish(sequence, TargetName(operation.plan));
  if (!published.plan) return std::move(published.failure);
  KeepPlan(operation.plan, std::move(published.plan), /*made=*/true);
  return Failure();
}

Failure LocalExecutor::Operate(const LocalPrepareSource& operation, Sequence sequence) {
  if (absl::Status status = CheckPlanRoom(operation.plan); !status.ok()) return Refused(status);
  KeptSource before = site_.objects.source();
  const SourceInput input{arena_.topk_experts, operation.token_count,
                          operation.hidden ? arena_.hidden : nullptr,
                          operation.route_weights ? arena_.route_weights : nullptr, arena_.plan};
  RankOperations::Prepared prepared =
      operations_.PrepareSource(sequence, TargetName(operation.plan), input);
  if (!prepared.source) return std::move(prepared.failure);
  begun_.back().makes_source = true;
  begun_.back().source_before = std::move(before);
  KeepPlan(operation.plan, prepared.source->plan(), /*made=*/true);
  return Failure();
}

// By the plan and not by its number: that may be another's by now, and the plan have a second one.
Failure LocalExecutor::Operate(const LocalMaterialise& operation, Sequence sequence) {
  const absl::StatusOr<PlanPtr> plan = FindPlan(operation.plan);
  if (!plan.ok()) return Refused(plan.status());
  const KeptSource view = site_.objects.source();
  if (view.source == nullptr || view.source->plan() != *plan) {
    return Refused(StaleObject(absl::StrCat(
        "plan ", operation.plan.value, " of sequence ", (*plan)->tag().sequence.value,
        " is of no source view that lives",
        view.source == nullptr
            ? std::string()
            : absl::StrCat("; that of sequence ", view.source->tag().sequence.value, " does"))));
  }
  return operations_.Materialise(sequence, view.name).failure;
}

}  // namespace perigee
