// The part of the control plane that hands out publication tokens: what is to be durable first, and
// the keys.
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"
#include "proto/support/event_log.h"
#include "proto/support/random.h"
#include "server/control_plane.h"
#include "server/publication/token_signing.h"

namespace perigee {

void ControlPlane::Do(const std::string& group, const TakeGeneration&) {
  const Entry& entry = groups_.at(group);
  disk_.Post([this, group, instance = entry.instance, ranks = entry.machine->Describe().ranks()] {
    TakeGenerationNow(group, instance, ranks);
  });
}

void ControlPlane::TakeGenerationNow(const std::string& group, uint64_t instance, int32_t ranks) {
  const std::string salt = random_(kTokenSaltBytes);
  const auto opened = store_.OpenGeneration(salt, ranks, kTokenSerials);
  using Taken = absl::StatusOr<Generation>;
  GenerationTaken taken{opened.ok() ? Taken(opened->generation) : Taken(opened.status())};
  for (int32_t rank = 0; opened.ok() && rank < ranks; ++rank) {
    taken.tokens.push_back({keys_.Derive(salt, group, opened->generation, RankId(rank)),
                            opened->serials[static_cast<size_t>(rank)]});
  }
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  Post(group, std::move(taken), instance);
  RunPosted();
}

void ControlPlane::Do(const std::string& group, const TakeSerials& effect) {
  disk_.Post([this, group, instance = groups_.at(group).instance, effect] {
    const auto serials = store_.TakeSerials(kTokenSerials);
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    Post(group, SerialsTaken{effect.rank, effect.holder, serials}, instance);
    RunPosted();
  });
}

void ControlPlane::Do(const std::string& group, const RecordIssue& effect) {
  disk_.Post([this, group, instance = groups_.at(group).instance, effect] {
    const absl::Time wall = clock_.Wall();
    const absl::Status status = store_.RecordIssue(effect.issue, wall, wall - kRequestIdLife);
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    Post(group, IssueRecorded{effect.call, status}, instance);
    RunPosted();
  });
}

void ControlPlane::Do(const std::string& group, const LedgerClosed& effect) {
  uint64_t spent = 0, burnt = 0;
  for (const v1::RankTokens& rank : effect.ledger.ranks()) {
    spent += rank.spent();
    burnt += rank.burnt();
  }
  LogEvent(
      LogLevel::kInfo, "token_ledger_closed",
      {{"group", group}, {"generation", effect.generation}, {"spent", spent}, {"burnt", burnt}});
  history_.KeepLedger(group, effect.generation, effect.ledger);
}

void ControlPlane::IssueTokens(const v1::IssueTokensRequest& request, CallDone done) {
  TokensWanted wanted;
  wanted.buffer = request.buffer();
  wanted.generation = Generation(request.generation());
  wanted.rank = request.rank();
  wanted.count = request.count() == 0 ? 1 : static_cast<uint64_t>(request.count());
  wanted.request_id = request.request_id().empty() ? NewRequestId() : request.request_id();
  wanted.fingerprint = absl::StrCat(request.buffer(), "\n", request.generation(), "\n",
                                    request.rank(), "\n", wanted.count);
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  const CallId call = AddCall(std::move(done));
  disk_.Post([this, wanted, call]() mutable {
    wanted.call = call;
    IssueTokensNow(wanted);
  });
}

// The stored answer, if there is one, holds whatever has become of the group since.
void ControlPlane::IssueTokensNow(const TokensWanted& wanted) {
  const auto found = store_.FindIssue(wanted.request_id);
  CallResult result{found.status(), {}, {}};
  if (found.ok() && *found) {
    const TokenIssue& issue = (*found)->issue;
    if (issue.fingerprint == wanted.fingerprint) {
      result.response =
          SignIssue(issue, keys_.Derive((*found)->salt, issue.group, issue.generation, issue.rank));
    } else {
      result.status = absl::InvalidArgumentError(
          absl::StrCat("request_id '", wanted.request_id, "' was used for another request before"));
    }
  }
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  const std::string group = wanted.buffer.substr(0, wanted.buffer.find("/buffers/"));
  const bool is_new = found.ok() && !*found;
  if (is_new && groups_.count(group) == 0) {
    result.status = absl::NotFoundError(absl::StrCat("no group ", group));
  }
  if (is_new && result.status.ok()) {
    Post(group, wanted);
    RunPosted();
  } else {
    FinishNow(wanted.call, result);
  }
}

void ControlPlane::GetTokenLedger(const std::string& group, Generation generation, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  if (const v1::TokenLedger* ledger = history_.FindLedger(group, generation)) {
    return done({absl::OkStatus(), {}, *ledger});
  }
  if (groups_.count(group) == 0) {
    return done({absl::NotFoundError(absl::StrCat("no group ", group)), {}, {}});
  }
  Post(group, LedgerWanted{AddCall(std::move(done)), generation});
  RunPosted();
}

}  // namespace perigee
