#include "client/lib/remote_round.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr char kInvalidProgram[] = "INVALID_PROGRAM";
constexpr char kStaleObject[] = "STALE_OBJECT";
constexpr char kDeclined[] = "DECLINED";
constexpr char kDisagreement[] = "DISAGREEMENT";

bool RunsExperts(const LocalOperation& operation) {
  return std::holds_alternative<LocalRunExperts>(operation);
}

const char* ReasonFor(const absl::Status& status) {
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
    absl::Status status = CheckTokens(operation.token_count);
    if (status.ok()) status = CheckNumber(operation.plan);
    if (status.ok()) status = plans_.CheckRoom(rank_, operation.plan);
    if (!status.ok()) return status;
    Wish wish{absl::StrCat("dispatch", Weights(operation.route_weights)), {}};
    FillInputs(operation.route_weights, *wish.operation.mutable_dispatch());
    wish.operation.mutable_dispatch()->set_topk_experts(kRemoteTopkExperts);
    return wish;
  }
  absl::StatusOr<Wish> operator()(const LocalDispatchWithPlan& operation) const {
    if (absl::Status status = CheckTokens(operation.token_count); !status.ok()) return status;
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
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
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
    const absl::StatusOr<RemotePlans::Plan> plan = plans_.Find(rank_, operation.plan);
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
  template <typename Bookkeeping>
  absl::StatusOr<Wish> operator()(const Bookkeeping&) const {
    return absl::InternalError("no worker runs such an operation");
  }

 private:
  absl::Status CheckTokens(int32_t count) const {
    if (count >= 0 && count <= tokens_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("dispatch: token_count is ", count, ", expected 0 to ", tokens_));
  }
  static absl::Status CheckNumber(LocalPlanId id) {
    if (id.value != 0) return absl::OkStatus();
    return absl::InvalidArgumentError("dispatch: plan is 0, expected a number of the caller's");
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

absl::StatusOr<RemotePlans::Plan> RemotePlans::Find(RankId rank, LocalPlanId id) const {
  const auto& own = ranks_[rank.value];
  const auto found = own.find(id.value);
  if (found != own.end()) return found->second;
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no plan ", id.value, " of this rank (", own.size(), " others are kept)"));
}

absl::Status RemotePlans::CheckRoom(RankId rank, LocalPlanId id) const {
  const auto& own = ranks_[rank.value];
  if (own.size() < kMaxRemotePlans || own.count(id.value) > 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("plan ", id.value, " cannot be kept: there are ", kMaxRemotePlans, " already"));
}

std::string RemotePlans::FreeName() const {
  std::set<std::string> used;
  for (const auto& own : ranks_) {
    for (const auto& [id, plan] : own) used.insert(plan.name);
  }
  size_t number = 0;
  while (used.count(absl::StrCat("rank-client/", number)) > 0) ++number;
  return absl::StrCat("rank-client/", number);
}

LocalCompletion Refusal(absl::Status status, const char* reason) {
  LocalCompletion completion;
  completion.status = std::move(status);
  completion.reason = reason;
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

RemoteRound DecideRound(absl::Span<const LocalOperation> operations, int32_t tokens,
                        const RemotePlans& plans) {
  RemoteRound round;
  round.told.resize(operations.size());
  const size_t experts = std::count_if(operations.begin(), operations.end(), RunsExperts);
  if (experts > 0 && experts < operations.size()) {
    for (size_t rank = 0; rank < operations.size(); ++rank) {
      if (!RunsExperts(operations[rank])) continue;
      round.told[rank] =
          Refusal(absl::InvalidArgumentError("a remote group runs experts on every rank, and "
                                             "another rank asks for something else"),
                  kInvalidProgram);
    }
    return round;
  }
  std::vector<absl::StatusOr<Wish>> wishes;
  for (size_t rank = 0; rank < operations.size(); ++rank) {
    wishes.push_back(
        std::visit(WishMaker(RankId(static_cast<int32_t>(rank)), tokens, plans), operations[rank]));
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
  if (std::holds_alternative<LocalDispatch>(operations[0])) {
    round.new_plan = plans.FreeName();
    round.operation->mutable_dispatch()->set_plan(round.new_plan);
  }
  return round;
}

}  // namespace perigee
