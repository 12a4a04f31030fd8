// The operations of an owner-sharded source of RankOperations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/rank_operations.h"

namespace perigee {
namespace {

Failure Refused(absl::Status status) { return Failure{std::move(status), absl::nullopt}; }

}  // namespace

absl::StatusOr<OwnerSource*> RankOperations::Source() const {
  OwnerSource* const source = site_.data_path.source();
  if (source != nullptr) return source;
  return absl::FailedPreconditionError("the buffer has no source storage");
}

RankOperations::Prepared RankOperations::PrepareSource(Sequence sequence, const std::string& name,
                                                       const SourceInput& input) {
  const absl::StatusOr<OwnerSource*> source = Source();
  if (!source.ok()) return {Refused(source.status()), nullptr};
  absl::StatusOr<SourcePtr> made = (*source)->PrepareSource(sequence, input);
  if (!made.ok()) {
    // The last view is over where other rows may lie in its place.
    site_.objects.KeepLivingSource({});
    return {Left(made.status()), nullptr};
  }
  site_.objects.KeepSource(name, *made);
  return {Failure(), *std::move(made)};
}

RankOperations::Dispatched RankOperations::Materialise(Sequence sequence, const std::string& name) {
  const absl::StatusOr<OwnerSource*> source = Source();
  if (!source.ok()) return {Refused(source.status()), nullptr};
  absl::Status free = site_.objects.CheckShardFree();
  if (!free.ok()) return {Refused(std::move(free)), nullptr};
  const absl::StatusOr<SourcePtr> view = site_.objects.FindSource(name);
  if (!view.ok()) return {Refused(view.status()), nullptr};
  absl::StatusOr<PlanPtr> plan = (*source)->Materialise(sequence, *view, {});
  if (!plan.ok()) {
    Failure failure = Left(plan.status());
    if (failure.record) site_.objects.RowsUndefined(sequence);
    return {std::move(failure), nullptr};
  }
  site_.objects.RowsDispatched(sequence, (*plan)->tag(), /*has_weights=*/true);
  return {Failure(), *std::move(plan)};
}

}  // namespace perigee
