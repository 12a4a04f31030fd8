// The steps of a direct publication of RankOperations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/rank_operations.h"
#include "worker/publication/token_refusal.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

// Nothing but the word: whoever presents it learns nothing else.
absl::Status CheckRefusal(TokenRefusal refusal) {
  if (refusal == TokenRefusal::kNone) return absl::OkStatus();
  const char* const word = WordFor(refusal);
  return WithReason(absl::PermissionDeniedError(absl::StrCat("publication token refused: ", word)),
                    word);
}

}  // namespace

absl::StatusOr<DirectPublication*> RankOperations::Publication() const {
  DirectPublication* const publication = site_.data_path.publication();
  if (publication != nullptr && site_.tokens != nullptr) return publication;
  return absl::UnimplementedError(
      "this rank cannot publish directly, expected an ordinary dispatch");
}

absl::StatusOr<std::string> RankOperations::TakeToken(const std::string* token) const {
  const BufferId buffer = site_.objects.buffer();
  if (token == nullptr) return site_.tokens->Draw(buffer);
  absl::Status status = CheckRefusal(site_.tokens->Check(*token, buffer));
  if (!status.ok()) return status;
  return *token;
}

absl::Status RankOperations::CheckShardFree() {
  absl::Status status = site_.objects.CheckShardFree();
  if (status.ok() || site_.tokens == nullptr) return status;
  const std::string& token = site_.objects.prepared_token();
  if (site_.tokens->Check(token, site_.objects.buffer()) == TokenRefusal::kNone) return status;
  DropTarget();
  return absl::OkStatus();
}

Failure RankOperations::PrepareDispatch(Sequence sequence, const std::string& name,
                                        const TargetInput& input) {
  const absl::StatusOr<DirectPublication*> publication = Publication();
  if (!publication.ok()) return Refused(publication.status());
  absl::Status status = CheckShardFree();
  if (!status.ok()) return Refused(std::move(status));
  absl::StatusOr<TargetPtr> target = (*publication)->PrepareDispatch(sequence, input);
  if (target.ok()) {
    site_.objects.KeepTarget(name, *std::move(target));
    return Failure();
  }
  Failure failure = Left(target.status());
  if (failure.record) site_.objects.RowsUndefined(sequence);
  return failure;
}

Failure RankOperations::PreparePublication(const std::string& name, const float* route_weights,
                                           bool has_weights, const std::string* token,
                                           bool beside) {
  const absl::StatusOr<DirectPublication*> publication = Publication();
  if (!publication.ok()) return Refused(publication.status());
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(name);
  if (!target.ok()) return Refused(target.status());
  if (absl::Status free = site_.objects.CheckShardFree(); !free.ok()) return Refused(free);
  absl::StatusOr<std::string> taken = TakeToken(token);
  if (absl::IsPermissionDenied(taken.status())) DropTarget();
  if (!taken.ok()) return Refused(taken.status());
  const absl::Status status = beside
                                  ? (*publication)->PreparePublicationBeside(*target, route_weights)
                                  : (*publication)->PreparePublication(*target, route_weights);
  if (status.ok()) site_.objects.PublicationPrepared(*std::move(taken), has_weights);
  return Left(status);
}

Failure RankOperations::StoreRows(const std::string& name, const BFloat16* hidden) {
  const absl::StatusOr<DirectPublication*> publication = Publication();
  if (!publication.ok()) return Refused(publication.status());
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(name);
  if (!target.ok()) return Refused(target.status());
  return Left((*publication)->StoreRows(*target, hidden));
}

absl::StatusOr<RowProducer*> RankOperations::Producer() const {
  RowProducer* const producer = site_.data_path.producer();
  if (producer != nullptr) return producer;
  return absl::UnimplementedError("this rank has no producer, expected rows that a client writes");
}

Failure RankOperations::Produce(const ProductInput& input, BFloat16* output) {
  const absl::StatusOr<RowProducer*> producer = Producer();
  if (!producer.ok()) return Refused(producer.status());
  return Left((*producer)->Produce(input, output));
}

Failure RankOperations::ProduceInto(const ProductInput& input, const std::string& name) {
  const absl::StatusOr<RowProducer*> producer = Producer();
  if (!producer.ok()) return Refused(producer.status());
  const absl::StatusOr<TargetPtr> target = site_.objects.FindTarget(name);
  if (!target.ok()) return Refused(target.status());
  return Left((*producer)->ProduceInto(input, *target));
}

RankOperations::Dispatched RankOperations::Publish(Sequence sequence, const std::string& name) {
  const absl::StatusOr<DirectPublication*> publication = Publication();
  if (!publication.ok()) return {Refused(publication.status()), nullptr};
  const absl::StatusOr<std::string> token = site_.objects.FindPreparedToken(name);
  if (!token.ok()) return {Refused(token.status()), nullptr};
  const TargetPtr target = *site_.objects.FindTarget(name);
  const bool has_weights = site_.objects.rows().has_weights;
  absl::Status refusal = CheckRefusal(site_.tokens->Spend(*token, site_.objects.buffer()));
  if (!refusal.ok()) {
    DropTarget();
    return {Refused(std::move(refusal)), nullptr};
  }
  absl::StatusOr<PlanPtr> plan = (*publication)->Publish(sequence, target, {});
  if (!plan.ok()) {
    Failure failure = Left(plan.status());
    DropTarget();
    return {std::move(failure), nullptr};
  }
  site_.objects.DropTarget();
  site_.objects.RowsDispatched(sequence, (*plan)->tag(), has_weights);
  return {Failure(), *std::move(plan)};
}

void RankOperations::DropTarget() {
  if (site_.data_path.publication() != nullptr) site_.data_path.publication()->DropTarget();
  site_.objects.DropTarget();
}

}  // namespace perigee
