#include "client/lib/remote_wish.h"

#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

// Fails as a worker refuses a local client's command.
class WishMaker {
 public:
  WishMaker(RankId rank, int32_t tokens, const RemotePlans& plans)
      : rank_(rank), tokens_(tokens), plans_(plans) {}

  absl::StatusOr<Wish> operator()(const LocalDispatch& operation) const {
    absl::Status status = CheckNoSlot("dispatch", operation.slot.has_value());
    if (status.ok()) status = CheckTokens("dispatch", operation.token_count);
    if (status.ok()) status = CheckNewPlan("dispatch", operation.plan);
    if (status.ok()) status = CheckShardFree();
    if (!status.ok()) return status;
    Wish wish{absl::StrCat("dispatch", Weights(operation.route_weights)), {}};
    FillInputs(operation.route_weights, *wish.operation.mutable_dispatch());
    wish.operation.mutable_dispatch()->set_topk_experts(kRemoteTopkExperts);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalDispatchWithPlan& operation) const {
    absl::Status status = CheckNoSlot("dispatch_with_plan", operation.slot.has_value());
    if (status.ok()) status = CheckTokens("dispatch_with_plan", operation.token_count);
    if (status.ok()) status = CheckShardFree();
    if (!status.ok()) return status;
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
    if (!plan.ok()) return plan.status();
    Wish wish{absl::StrCat("dispatch", Weights(operation.route_weights), " by a ", Describe(*plan)),
              {}};
    FillInputs(operation.route_weights, *wish.operation.mutable_dispatch());
    wish.operation.mutable_dispatch()->set_saved_plan(plan->name);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalPrefetchWeights& operation) const {
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
    if (!plan.ok()) return plan.status();
    Wish wish{absl::StrCat("prefetch_weights of layer ", operation.layer, ", version ",
                           operation.weights_version, ", for a ", Describe(*plan)),
              {}};
    v1::PrefetchWeightsOperation& prefetch = *wish.operation.mutable_prefetch_weights();
    prefetch.set_plan(plan->name);
    prefetch.set_layer(operation.layer);
    prefetch.set_weights_version(operation.weights_version);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalRunExperts& operation) const {
    const bool in_slot = operation.slot.has_value() || operation.output_slot;
    if (absl::Status status = CheckNoSlot("run_experts", in_slot); !status.ok()) return status;
    const absl::StatusOr<RemotePlans::Plan> plan = FindPlanOfRows(operation.plan);
    if (!plan.ok()) return plan.status();
    Wish wish{absl::StrCat("run_experts of layer ", operation.layer, ", version ",
                           operation.weights_version, Weights(operation.route_weights), ", by a ",
                           Describe(*plan)),
              {}};
    v1::RunExpertsOperation& experts = *wish.operation.mutable_run_experts();
    experts.set_plan(plan->name);
    experts.set_layer(operation.layer);
    experts.set_weights_version(operation.weights_version);
    experts.set_apply_route_weights(operation.route_weights);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalCombine& operation) const {
    absl::Status status = CheckNoSlot("combine", operation.slot.has_value());
    if (!status.ok()) return status;
    const absl::StatusOr<RemotePlans::Plan> plan = FindPlanOfRows(operation.plan);
    if (!plan.ok()) return plan.status();
    if (operation.own_weights || operation.own_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("combine: own ", operation.own_weights ? "weights" : "rows",
                       " are in the shard, which a remote client does not share"));
    }
    Wish wish{absl::StrCat("combine", Weights(operation.route_weights), " by a ", Describe(*plan)),
              {}};
    v1::CombineOperation& combine = *wish.operation.mutable_combine();
    combine.set_plan(plan->name);
    combine.set_output(kRemoteOutput);
    if (operation.route_weights) combine.set_route_weights_output(kRemoteGatheredWeights);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalReduceGradients& operation) const {
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
    if (!plan.ok()) return plan.status();
    Wish wish{
        absl::StrCat("reduce_gradients of layer ", operation.layer, " by a ", Describe(*plan)), {}};
    v1::ReduceGradientsOperation& reduce = *wish.operation.mutable_reduce_gradients();
    reduce.set_plan(plan->name);
    reduce.set_layer(operation.layer);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalBarrier&) const {
    Wish wish{"barrier", {}};
    wish.operation.mutable_barrier();
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalPrepareDispatch& operation) const {
    absl::Status status = CheckTokens("prepare_dispatch", operation.token_count);
    if (status.ok()) status = CheckNewPlan("prepare_dispatch", operation.plan);
    if (status.ok()) status = CheckShardFree();
    if (!status.ok()) return status;
    Wish wish{"prepare_dispatch", {}};
    v1::PrepareDispatchOperation& prepare = *wish.operation.mutable_prepare_dispatch();
    prepare.set_topk_experts(kRemoteTopkExperts);
    prepare.set_target(kRemoteTarget);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalPreparePublication& operation) const {
    const absl::StatusOr<RemotePlans::Target> target = plans_.FindTarget(rank_, operation.plan);
    if (!target.ok()) return target.status();
    if (absl::Status status = CheckShardFree(); !status.ok()) return status;
    Wish wish{absl::StrCat("prepare_publication", Weights(operation.route_weights)), {}};
    v1::PreparePublicationOperation& prepare = *wish.operation.mutable_prepare_publication();
    prepare.set_target(kRemoteTarget);
    if (operation.route_weights) prepare.set_route_weights(kRemoteRouteWeights);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalStoreRows& operation) const {
    const absl::StatusOr<RemotePlans::Target> target = plans_.FindTarget(rank_, operation.plan);
    if (!target.ok()) return target.status();
    Wish wish{"store_rows", {}};
    wish.operation.mutable_store_rows()->set_target(kRemoteTarget);
    wish.operation.mutable_store_rows()->set_hidden(kRemoteHidden);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalPublish& operation) const {
    absl::Status status = CheckNewPlan("publish", operation.plan);
    if (status.ok()) status = CheckPublishable(operation.plan);
    if (!status.ok()) return status;
    Wish wish{"publish", {}};
    wish.operation.mutable_publish()->set_target(kRemoteTarget);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalPrepareSource& operation) const {
    absl::Status status = CheckTokens("prepare_source", operation.token_count);
    if (status.ok()) status = CheckNewPlan("prepare_source", operation.plan);
    if (!status.ok()) return status;
    Wish wish{absl::StrCat("prepare_source", operation.hidden ? " with rows" : "",
                           Weights(operation.route_weights)),
              {}};
    v1::PrepareSourceOperation& prepare = *wish.operation.mutable_prepare_source();
    prepare.set_topk_experts(kRemoteTopkExperts);
    if (operation.hidden) prepare.set_hidden(kRemoteHidden);
    if (operation.route_weights) prepare.set_route_weights(kRemoteRouteWeights);
    prepare.set_source(kRemoteSource);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalMaterialise& operation) const {
    if (absl::Status status = CheckShardFree(); !status.ok()) return status;
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
    if (!plan.ok()) return plan.status();
    if (plans_.source(rank_) != plan->sequence) {
      return absl::FailedPreconditionError(absl::StrCat("plan ", operation.plan.value,
                                                        " of sequence ", plan->sequence,
                                                        " is of no source view that lives"));
    }
    Wish wish{absl::StrCat("materialise by a ", Describe(*plan)), {}};
    v1::MaterialiseOperation& materialise = *wish.operation.mutable_materialise();
    materialise.set_source(kRemoteSource);
    // The same plan: where this fails, it is that name which goes.
    materialise.set_plan(kRemoteMaterialised);
    return wish;
  }
  template <typename Bookkeeping>
  absl::StatusOr<Wish> operator()(const Bookkeeping&) const {
    return absl::InternalError("no worker runs such an operation");
  }

 private:
  static absl::Status CheckNoSlot(const char* operation, bool named) {
    if (!named) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", kNoRemoteSlots));
  }
  absl::Status CheckTokens(const char* operation, int32_t count) const {
    if (count >= 0 && count <= tokens_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": token_count is ", count, ", expected 0 to ", tokens_));
  }
  absl::Status CheckNewPlan(const char* operation, LocalPlanId id) const {
    if (id.value != 0) return plans_.CheckRoom(rank_, id);
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": plan is 0, expected a number of the caller's"));
  }
  absl::Status CheckShardFree() const {
    const absl::optional<RemotePlans::Target>& target = plans_.target(rank_);
    if (!target || !target->prepared) return absl::OkStatus();
    absl::Status pending = absl::FailedPreconditionError(
        absl::StrCat("the shard holds the target of plan ", target->plan.value,
                     ", whose publication is prepared: nothing else may write it until then"));
    pending.SetPayload(kRemoteReasonPayload, absl::Cord("PUBLICATION_PENDING"));
    return pending;
  }
  // Where this rank's target is over and another's lives, the workers tell: theirs is over, too.
  absl::Status CheckPublishable(LocalPlanId id) const {
    if (!plans_.target(rank_) && plans_.AnyTarget()) return absl::OkStatus();
    const absl::StatusOr<RemotePlans::Target> target = plans_.FindTarget(rank_, id);
    if (!target.ok() || target->prepared) return target.status();
    return absl::FailedPreconditionError(
        absl::StrCat("the publication of target '", id.value, "' is not prepared"));
  }
  absl::StatusOr<RemotePlans::Plan> FindPlanOfRows(LocalPlanId id) const {
    const absl::optional<RemotePlans::Target>& target = plans_.target(rank_);
    if (!target) return plans_.Find(rank_, id);
    return absl::FailedPreconditionError(
        absl::StrCat("rows of plan ", id.value, " are wanted; the shard holds the target of plan ",
                     target->plan.value));
  }
  static void FillInputs(bool weights, v1::DispatchOperation& dispatch) {
    dispatch.set_hidden(kRemoteHidden);
    if (weights) dispatch.set_route_weights(kRemoteRouteWeights);
  }
  static const char* Weights(bool weights) { return weights ? " with route weights" : ""; }
  static std::string Describe(const RemotePlans::Plan& plan) {
    return absl::StrCat("plan of sequence ", plan.sequence);
  }

  const RankId rank_;
  const int32_t tokens_;
  const RemotePlans& plans_;
};

}  // namespace

std::string RemoteReasonFor(const absl::Status& status) {
  const absl::optional<absl::Cord> given = status.GetPayload(kRemoteReasonPayload);
  if (given) return std::string(*given);
  return absl::IsInvalidArgument(status) ? "INVALID_PROGRAM" : "STALE_OBJECT";
}

absl::StatusOr<Wish> MakeWish(const LocalOperation& operation, RankId rank, int32_t tokens,
                              const RemotePlans& plans) {
  return std::visit(WishMaker(rank, tokens, plans), operation);
}

}  // namespace perigee
