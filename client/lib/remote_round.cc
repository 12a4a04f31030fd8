#include "client/lib/remote_round.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr char kInvalidProgram[] = "INVALID_PROGRAM";
constexpr char kDeclined[] = "DECLINED";
constexpr char kDisagreement[] = "DISAGREEMENT";

// Every rank runs it in a program, or none does, though no rank waits in it for others.
bool IsLocalOnWorkers(const LocalOperation& operation) { return !IsCollective(KindOf(operation)); }

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
      round.told[rank] = Refusal(own, RemoteReasonFor(own));
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
  completion.status.ErasePayload(kRemoteReasonPayload);
  completion.reason = std::move(reason);
  return completion;
}

bool IsBookkeeping(const LocalOperation& operation) {
  return std::holds_alternative<LocalEmpty>(operation) ||
         std::holds_alternative<LocalReleasePlan>(operation) ||
         std::holds_alternative<LocalClonePlan>(operation) ||
         std::holds_alternative<LocalReleaseSlot>(operation);
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
  } else if (std::holds_alternative<LocalReleaseSlot>(operation)) {
    status = absl::InvalidArgumentError(absl::StrCat("release_slot: ", kNoRemoteSlots));
  }
  return status.ok() ? LocalCompletion() : Refusal(status, RemoteReasonFor(status));
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
  if (const auto* source = std::get_if<LocalPrepareSource>(&operation)) return source->token_count;
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

bool StoresSource(const v1::ProgramOperation& operation) {
  return !operation.prepare_source().hidden().empty() ||
         !operation.prepare_source().route_weights().empty();
}

void NamePlan(const RemotePlans& plans, RemoteRound& round) {
  v1::ProgramOperation& operation = *round.operation;
  const bool plans_anew = operation.has_dispatch() && operation.dispatch().saved_plan().empty();
  if (!plans_anew && !operation.has_publish() && !operation.has_prepare_source()) return;
  round.new_plan = plans.FreeName();
  if (plans_anew) operation.mutable_dispatch()->set_plan(round.new_plan);
  if (operation.has_publish()) operation.mutable_publish()->set_plan(round.new_plan);
  if (operation.has_prepare_source()) {
    operation.mutable_prepare_source()->set_plan(round.new_plan);
  }
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
    wishes.push_back(MakeWish(operations[rank], id, tokens, plans));
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
      // What it was to store may be there.
      if (StoresSource(*round.operation)) plans.source(rank) = 0;
      continue;
    }
    const uint64_t sequence = completion.sequence.value;
    if (round.operation->has_dispatch() || round.operation->has_materialise()) target.reset();
    if (const auto* dispatch = std::get_if<LocalDispatch>(&operations[place])) {
      if (sequence != 0) plans.Keep(rank, dispatch->plan, {round.new_plan, sequence});
    } else if (const auto* source = std::get_if<LocalPrepareSource>(&operations[place])) {
      plans.source(rank) = sequence;
      if (sequence != 0) plans.Keep(rank, source->plan, {round.new_plan, sequence});
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
