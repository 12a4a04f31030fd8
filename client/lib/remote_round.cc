#include "client/lib/remote_round.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr char kInvalidProgram[] = "INVALID_PROGRAM";
constexpr char kStaleObject[] = "STALE_OBJECT";
constexpr char kDeclined[] = "DECLINED";
constexpr char kDisagreement[] = "DISAGREEMENT";

constexpr char kPublicationPending[] = "PUBLICATION_PENDING";

// Every rank runs it in a program, or none does, though no rank waits in it for others.
bool IsLocalOnWorkers(const LocalOperation& operation) { return !IsCollective(KindOf(operation)); }

// A status that has it is refused with this reason.
constexpr char kReasonPayload[] = "perigee.reason";

std::string ReasonFor(const absl::Status& status) {
  const absl::optional<absl::Cord> given = status.GetPayload(kReasonPayload);
  if (given) return std::string(*given);
  return absl::IsInvalidArgument(status) ? kInvalidProgram : kStaleObject;
}

// Of one rank's operation, what must be the same on all of them: in words, and for the program.
struct Wish {
  std::string words;
  v1::ProgramOperation operation;
};

// Fails as a worker refuses a local client's command.
class WishMaker {
 public:
  WishMaker(RankId rank, int32_t tokens, const RemotePlans& plans)
      : rank_(rank), tokens_(tokens), plans_(plans) {}

  absl::StatusOr<Wish> operator()(const LocalDispatch& operation) const {
    absl::Status status = CheckTokens("dispatch", operation.token_count);
    if (status.ok()) status = CheckNewPlan("dispatch", operation.plan);
    if (status.ok()) status = CheckShardFree();
    if (!status.ok()) return status;
    Wish wish{absl::StrCat("dispatch", Weights(operation.route_weights)), {}};
    FillInputs(operation.route_weights, *wish.operation.mutable_dispatch());
    wish.operation.mutable_dispatch()->set_topk_experts(kRemoteTopkExperts);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalDispatchWithPlan& operation) const {
    absl::Status status = CheckTokens("dispatch_with_plan", operation.token_count);
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
    const absl::StatusOr<RemotePlans::Plan> plan = FindPlanOfRows(operation.plan);
    if (!plan.ok()) return plan.status();
    if (operation.own_weights) {
      return absl::InvalidArgumentError(
          "combine: own weights are in the shard, which a remote client does not share");
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
  template <typename Bookkeeping>
  absl::StatusOr<Wish> operator()(const Bookkeeping&) const {
    return absl::InternalError("no worker runs such an operation");
  }

 private:
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
    pending.SetPayload(kReasonPayload, absl::Cord(kPublicationPending));
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

// All are told; the first that differs from rank 0 is named.
void TellDisagreement(const std::vector<absl::StatusOr<Wish>>& wishes, RemoteRound& round) {
  size_t other = 1;
  while (wishes[other]->words == wishes[0]->words) ++other;
  const absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("ranks disagree: rank ", other, " says ", wishes[other]->words, ", rank 0 says ",
                   wishes[0]->words));
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    round.told[rank] = Refusal(status, kDisagreement);
    round.told[rank]->awaited_rank = rank == other ? 0 : static_cast<int32_t>(other);
  }
}

void TellRefusal(const std::vector<absl::StatusOr<Wish>>& wishes, size_t refused,
                 RemoteRound& round) {
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    const absl::Status& own = wishes[rank].status();
    if (!own.ok()) {
      round.told[rank] = Refusal(own, ReasonFor(own));
      continue;
    }
    round.told[rank] = Refusal(
        absl::FailedPreconditionError(absl::StrCat(
            "rank ", refused, " declined the operation: ", wishes[refused].status().message())),
        kDeclined);
    round.told[rank]->awaited_rank = static_cast<int32_t>(refused);
  }
}

}  // namespace

LocalCompletion Refusal(absl::Status status, std::string reason) {
  LocalCompletion completion;
  completion.status = std::move(status);
  completion.status.ErasePayload(kReasonPayload);
  completion.reason = std::move(reason);
  return completion;
}

bool IsBookkeeping(const LocalOperation& operation) {
  return std::holds_alternative<LocalEmpty>(operation) ||
         std::holds_alternative<LocalReleasePlan>(operation) ||
         std::holds_alternative<LocalClonePlan>(operation);
}

LocalCompletion KeepBooks(const LocalOperation& operation, RankId rank, RemotePlans& plans) {
  absl::Status status;
  if (const auto* release = std::get_if<LocalReleasePlan>(&operation)) {
    status = plans.Find(rank, release->plan).status();
    if (status.ok()) plans.Release(rank, release->plan);
  } else if (const auto* clone = std::get_if<LocalClonePlan>(&operation)) {
    const absl::StatusOr<RemotePlans::Plan> source = plans.Find(rank, clone->source);
    status = source.status();
    if (status.ok()) status = plans.CheckRoom(rank, clone->plan);
    if (status.ok()) plans.Keep(rank, clone->plan, *source);
  }
  return status.ok() ? LocalCompletion() : Refusal(status, ReasonFor(status));
}

namespace {

// Whether those that ask for a local operation have been told that the others do not.
bool TellLocalOnes(absl::Span<const LocalOperation> operations, RemoteRound& round) {
  bool same = true, any = false;
  for (const LocalOperation& operation : operations) {
    same = same && operation.index() == operations[0].index();
    any = any || IsLocalOnWorkers(operation);
  }
  if (same || !any) return false;
  for (size_t rank = 0; rank < operations.size(); ++rank) {
    if (!IsLocalOnWorkers(operations[rank])) continue;
    round.told[rank] = Refusal(absl::InvalidArgumentError(absl::StrCat(
                                   "a remote group runs ", CommandName(KindOf(operations[rank])),
                                   " on every rank, and another rank asks for something else")),
                               kInvalidProgram);
  }
  return true;
}

int32_t TokensOf(const LocalOperation& operation, const absl::optional<RemotePlans::Target>& of) {
  if (const auto* made = std::get_if<LocalDispatch>(&operation)) return made->token_count;
  if (const auto* saved = std::get_if<LocalDispatchWithPlan>(&operation)) return saved->token_count;
  if (const auto* target = std::get_if<LocalPrepareDispatch>(&operation))
    return target->token_count;
  return of ? of->token_count : 0;
}

// Those that ranks bring; none where no rank does.
void FillTokens(absl::Span<const LocalOperation> operations, v1::ProgramOperation& operation) {
  if (!operation.has_prepare_publication()) return;
  v1::PreparePublicationOperation& prepare = *operation.mutable_prepare_publication();
  bool any = false;
  for (const LocalOperation& of_rank : operations) {
    const auto& token = std::get<LocalPreparePublication>(of_rank).token;
    any = any || token.has_value();
    prepare.add_tokens(token ? std::string(token->begin(), token->end()) : "");
  }
  if (!any) prepare.clear_tokens();
}

void NamePlan(const RemotePlans& plans, RemoteRound& round) {
  v1::ProgramOperation& operation = *round.operation;
  const bool plans_anew = operation.has_dispatch() && operation.dispatch().saved_plan().empty();
  if (!plans_anew && !operation.has_publish()) return;
  round.new_plan = plans.FreeName();
  if (plans_anew) operation.mutable_dispatch()->set_plan(round.new_plan);
  if (operation.has_publish()) operation.mutable_publish()->set_plan(round.new_plan);
}

}  // namespace

RemoteRound DecideRound(absl::Span<const LocalOperation> operations, int32_t tokens,
                        const RemotePlans& plans) {
  RemoteRound round;
  round.told.resize(operations.size());
  if (TellLocalOnes(operations, round)) return round;
  std::vector<absl::StatusOr<Wish>> wishes;
  for (size_t rank = 0; rank < operations.size(); ++rank) {
    const RankId id(static_cast<int32_t>(rank));
    wishes.push_back(std::visit(WishMaker(id, tokens, plans), operations[rank]));
    const absl::optional<RemotePlans::Target>& target = plans.target(id);
    round.token_counts.push_back(TokensOf(operations[rank], target));
    if (target) round.target_sequence = target->sequence;
  }
  const auto refused =
      std::find_if(wishes.begin(), wishes.end(), [](const auto& wish) { return !wish.ok(); });
  if (refused != wishes.end()) {
    TellRefusal(wishes, refused - wishes.begin(), round);
    return round;
  }
  const bool agreed = std::all_of(wishes.begin(), wishes.end(), [&](const auto& wish) {
    return wish->words == wishes[0]->words;
  });
  if (!agreed) {
    TellDisagreement(wishes, round);
    return round;
  }
  round.operation = std::move(wishes[0]->operation);
  FillTokens(operations, *round.operation);
  NamePlan(plans, round);
  return round;
}

void NoteOutcome(const RemoteRound& round, absl::Span<const LocalOperation> operations,
                 absl::Span<const LocalCompletion> ranks, RemotePlans& plans) {
  for (size_t place = 0; place < operations.size(); ++place) {
    const RankId rank(static_cast<int32_t>(place));
    const LocalCompletion& completion = ranks[place];
    absl::optional<RemotePlans::Target>& target = plans.target(rank);
    // A rank whose program fails has dropped its target.
    if (!completion.status.ok()) {
      target.reset();
      continue;
    }
    const uint64_t sequence = completion.sequence.value;
    if (round.operation->has_dispatch()) target.reset();
    if (const auto* dispatch = std::get_if<LocalDispatch>(&operations[place])) {
      if (sequence != 0) plans.Keep(rank, dispatch->plan, {round.new_plan, sequence});
    } else if (const auto* prepare = std::get_if<LocalPrepareDispatch>(&operations[place])) {
      target = RemotePlans::Target{prepare->plan, sequence, prepare->token_count};
    } else if (const auto* publish = std::get_if<LocalPublish>(&operations[place])) {
      if (target) plans.Keep(rank, publish->plan, {round.new_plan, target->sequence});
      target.reset();
    } else if (round.operation->has_prepare_publication() && target) {
      target->prepared = true;
    }
  }
}

}  // namespace perigee
