// The ways to get rows into the shard that are not a dispatch: direct publication, its producer,
// and an owner-sharded source.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/operation_arguments.h"
#include "worker/ops/operation_launcher.h"

namespace perigee {

Failure OperationLauncher::PrepareDispatch(const v1::PrepareDispatchOperation& operation,
                                           Sequence sequence) {
  const auto routes =
      FindInput(operation.topk_experts(), v1::TENSOR_DTYPE_INT32, -1, site_.shape.geometry.topk);
  if (!routes.ok()) return Refused(routes.status());
  const auto tokens = static_cast<int32_t>((*routes)->spec().shape[0]);
  Failure failure = operations_.PrepareDispatch(sequence, operation.target(),
                                                {Elements<int32_t>(*routes), tokens});
  if (failure.status.ok()) unsettled_.rows = true;
  return failure;
}

Failure OperationLauncher::PreparePublication(const v1::PreparePublicationOperation& operation,
                                              bool beside) {
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(operation.target());
  if (!target.ok()) return Refused(target.status());
  std::shared_ptr<StoredTensor> weights;
  if (!operation.route_weights().empty()) {
    auto found = FindInput(operation.route_weights(), v1::TENSOR_DTYPE_FLOAT32,
                           (*target)->token_count(), site_.shape.geometry.topk);
    if (!found.ok()) return Refused(found.status());
    weights = *std::move(found);
  }
  const std::string* token = nullptr;
  if (operation.tokens_size() > 0) token = &operation.tokens(site_.memory.rank().value);
  if (token != nullptr && token->empty()) token = nullptr;
  return operations_.PreparePublication(operation.target(), Elements<float>(weights),
                                        weights != nullptr, token, beside);
}

Failure OperationLauncher::StoreRows(const v1::StoreRowsOperation& operation) {
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(operation.target());
  if (!target.ok()) return Refused(target.status());
  const auto hidden = FindInput(operation.hidden(), v1::TENSOR_DTYPE_BFLOAT16,
                                (*target)->token_count(), site_.shape.hidden);
  if (!hidden.ok()) return Refused(hidden.status());
  return operations_.StoreRows(operation.target(), Elements<BFloat16>(*hidden));
}

absl::StatusOr<ProductInput> OperationLauncher::FindFactors(
    const v1::ProduceOperation& operation) const {
  const auto a = site_.tensors.Find(operation.a());
  if (!a.ok()) return a.status();
  const TensorSpec& spec = (*a)->spec();
  if (spec.dtype != v1::TENSOR_DTYPE_BFLOAT16 || spec.shape.size() != 2) {
    return StaleObject(absl::StrCat("tensor '", operation.a(), "' is ", Describe(spec),
                                    ", expected bfloat16 [n, C]"));
  }
  const auto b =
      FindInput(operation.b(), v1::TENSOR_DTYPE_BFLOAT16, spec.shape[1], site_.shape.hidden);
  if (!b.ok()) return b.status();
  return ProductInput{Elements<BFloat16>(*a), Elements<BFloat16>(*b),
                      static_cast<int32_t>(spec.shape[1]), static_cast<int32_t>(spec.shape[0])};
}

Failure OperationLauncher::Produce(const v1::ProduceOperation& operation) {
  const absl::StatusOr<ProductInput> input = FindFactors(operation);
  if (!input.ok()) return Refused(input.status());
  if (operation.has_target()) return operations_.ProduceInto(*input, operation.target());
  Failure failure =
      operations_.Produce(*input, Elements<BFloat16>(outputs_.at(operation.output())));
  if (failure.status.ok()) {
    NoteOutputs({operation.output()});
  } else if (failure.record) {
    site_.tensors.MarkUndefined(operation.output(), "what produces it has ended early");
  }
  return failure;
}

Failure OperationLauncher::Publish(const v1::PublishOperation& operation, Sequence sequence) {
  absl::Status status = site_.objects.CheckPlanRoom(operation.plan());
  if (!status.ok()) return Refused(status);
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(operation.target());
  if (!target.ok()) return Refused(target.status());
  RankOperations::Dispatched published = operations_.Publish(sequence, operation.target());
  if (!published.plan) return std::move(published.failure);
  KeepMadePlan(operation.plan(), std::move(published.plan), (*target)->token_count());
  return Failure();
}

Failure OperationLauncher::PrepareSource(const v1::PrepareSourceOperation& operation,
                                         Sequence sequence) {
  const auto routes =
      FindInput(operation.topk_experts(), v1::TENSOR_DTYPE_INT32, -1, site_.shape.geometry.topk);
  if (!routes.ok()) return Refused(routes.status());
  const auto tokens = static_cast<int32_t>((*routes)->spec().shape[0]);
  std::shared_ptr<StoredTensor> hidden;
  if (!operation.hidden().empty()) {
    auto found =
        FindInput(operation.hidden(), v1::TENSOR_DTYPE_BFLOAT16, tokens, site_.shape.hidden);
    if (!found.ok()) return Refused(found.status());
    hidden = *std::move(found);
  }
  std::shared_ptr<StoredTensor> weights;
  if (!operation.route_weights().empty()) {
    auto found = FindInput(operation.route_weights(), v1::TENSOR_DTYPE_FLOAT32, tokens,
                           site_.shape.geometry.topk);
    if (!found.ok()) return Refused(found.status());
    weights = *std::move(found);
  }
  if (!operation.plan().empty()) {
    absl::Status status = site_.objects.CheckPlanRoom(operation.plan());
    if (!status.ok()) return Refused(status);
  }
  KeptSource before = site_.objects.source();
  RankOperations::Prepared prepared = operations_.PrepareSource(
      sequence, operation.source(),
      {Elements<int32_t>(*routes), tokens, Elements<BFloat16>(hidden), Elements<float>(weights)});
  if (!prepared.source) return std::move(prepared.failure);
  if (site_.data_path.queues()) unsettled_.sources.push_back(std::move(before));
  if (!operation.plan().empty()) {
    KeepPlanAlone(operation.plan(), prepared.source->plan(), tokens);
  }
  return Failure();
}

Failure OperationLauncher::Materialise(const v1::MaterialiseOperation& operation,
                                       Sequence sequence) {
  absl::Status status = site_.objects.CheckPlanRoom(operation.plan());
  if (!status.ok()) return Refused(status);
  const absl::StatusOr<SourcePtr> source = site_.objects.FindSource(operation.source());
  if (!source.ok()) return Refused(source.status());
  RankOperations::Dispatched materialised = operations_.Materialise(sequence, operation.source());
  if (!materialised.plan) return std::move(materialised.failure);
  KeepMadePlan(operation.plan(), std::move(materialised.plan), (*source)->token_count());
  return Failure();
}

}  // namespace perigee
