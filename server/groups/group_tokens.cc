#include "server/groups/group_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"
#include "proto/support/resource_name.h"
#include "server/publication/token_signing.h"
#include "server/wire_time.h"

namespace perigee {
namespace {

// After a supply that failed.
constexpr absl::Duration kSupplyPause = absl::Seconds(1);

absl::Duration RenewAfter(absl::Duration sent_at) {
  return sent_at + kTokenLife - kTokenLife / kTokenRefillDivisor;
}

void Fill(v1::TokenGrant& grant, v1::TokenGrant::Holder holder, const SerialRange& serials) {
  grant.set_first_serial(serials.first);
  grant.set_count(serials.count);
  *grant.mutable_life() = ToWire(kTokenLife);
  grant.set_holder(holder);
}

}  // namespace

void GroupTokens::Open(std::vector<FirstTokens> tokens) {
  ranks_.clear();
  ranks_.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.key = tokens[i].key;
    rank.first = tokens[i].serials;
    rank.granted = rank.first.count;
    rank.counts.set_held(rank.first.count);
    rank.supplies[v1::TokenGrant::WORKER].renew_at = RenewAfter(context_.now.monotonic);
  }
}

void GroupTokens::FillFirst(int32_t rank, v1::OpenSessionCommand& open) const {
  if (rank >= static_cast<int32_t>(ranks_.size())) return;
  v1::TokenGrant& grant = *open.mutable_tokens();
  Fill(grant, v1::TokenGrant::WORKER, ranks_[rank].first);
  grant.set_key(ranks_[rank].key.data(), ranks_[rank].key.size());
}

absl::Status GroupTokens::Check(const TokensWanted& event) const {
  absl::Status status = buffers_.CheckUsable(event.buffer, event.generation);
  if (!status.ok()) return status;
  const auto ranks = static_cast<int32_t>(ranks_.size());
  if (event.rank >= 0 && event.rank < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank is ", event.rank, ", expected 0 to ", ranks - 1));
}

void GroupTokens::Issue(const TokensWanted& event) {
  if (absl::Status status = Check(event); !status.ok()) {
    context_.Finish(event.call, std::move(status));
    return;
  }
  ranks_[event.rank].waiting.push_back(event);
  Pump(event.rank);
}

void GroupTokens::Pump(int32_t index) {
  Rank& rank = ranks_[index];
  const absl::Duration now = context_.now.monotonic;
  while (!rank.waiting.empty()) {
    const TokensWanted& wanted = rank.waiting.front();
    const v1::Buffer* const buffer = buffers_.Find(wanted.buffer);
    if (buffer == nullptr) {
      context_.Finish(wanted.call, absl::NotFoundError(absl::StrCat("no buffer ", wanted.buffer)));
      rank.waiting.pop_front();
      continue;
    }
    const absl::optional<SerialRange> serials = rank.issuable.Take(wanted.count, now);
    if (!serials) break;
    TokenIssue& issue = issues_[wanted.call];
    issue = {wanted.request_id, wanted.fingerprint,     context_.name, context_.generation,
             RankId(index),     BufferId(buffer->id()), *serials,      kTokenLife};
    context_.effects.push_back(RecordIssue{wanted.call, issue});
    rank.waiting.pop_front();
  }
  const bool used = rank.issuable.issued() > 0;
  if (!rank.waiting.empty() || (used && rank.issuable.low(now))) {
    Request(index, v1::TokenGrant::CLIENTS);
  }
}

void GroupTokens::TakeRecorded(const IssueRecorded& event) {
  const auto found = issues_.find(event.call);
  if (found == issues_.end()) return;
  const TokenIssue issue = std::move(found->second);
  issues_.erase(found);
  if (!event.status.ok()) {
    context_.Finish(event.call, event.status);
    return;
  }
  v1::IssueTokensResponse response = SignIssue(issue, ranks_[issue.rank.value].key);
  response.set_worker(context_.members[issue.rank.value].info.worker());
  context_.FinishWith(event.call, response);
}

void GroupTokens::Request(int32_t rank, v1::TokenGrant::Holder holder) {
  Supply& supply = ranks_[rank].supplies[holder];
  if (supply.taking || !supply.round.complete()) return;
  supply.taking = true;
  supply.renew_at = absl::InfiniteDuration();
  context_.effects.push_back(perigee::TakeSerials{rank, holder});
}

void GroupTokens::Take(const SerialsTaken& event) {
  if (event.rank >= static_cast<int32_t>(ranks_.size())) return;
  Supply& supply = ranks_[event.rank].supplies[event.holder];
  // Asked for in an earlier generation: burnt.
  if (!std::exchange(supply.taking, false)) return;
  if (event.serials.ok()) {
    SendGrant(event.rank, event.holder, *event.serials);
  } else {
    FailSupply(event.rank, event.holder, std::string(event.serials.status().message()));
  }
}

void GroupTokens::SendGrant(int32_t rank, v1::TokenGrant::Holder holder,
                            const SerialRange& serials) {
  Supply& supply = ranks_[rank].supplies[holder];
  supply.serials = serials;
  supply.sent_at = context_.now.monotonic;
  supply.deadline = context_.now.monotonic + context_.times.forming_timeout;
  v1::WorkerCommand command;
  Fill(*command.mutable_grant_tokens(), holder, serials);
  supply.round = context_.SendToRank(rank, std::move(command));
}

void GroupTokens::EndGrant(int32_t index, v1::TokenGrant::Holder holder,
                           const v1::CommandResult& result) {
  Rank& rank = ranks_[index];
  Supply& supply = rank.supplies[holder];
  supply.deadline = absl::InfiniteDuration();
  // Also where it failed: its worker may have taken it.
  rank.granted += supply.serials.count;
  if (result.status().code() != 0) {
    FailSupply(index, holder, result.status().message());
    return;
  }
  if (result.has_tokens()) {
    rank.counts = result.tokens();
  } else {
    rank.counts.set_held(rank.counts.held() + supply.serials.count);
  }
  if (holder == v1::TokenGrant::WORKER) {
    supply.renew_at = RenewAfter(supply.sent_at);
  } else {
    rank.issuable.Add(supply.serials, supply.sent_at, kTokenLife);
    Pump(index);
  }
}

void GroupTokens::FailSupply(int32_t index, v1::TokenGrant::Holder holder, const std::string& why) {
  Rank& rank = ranks_[index];
  if (holder == v1::TokenGrant::WORKER) {
    rank.supplies[holder].renew_at = context_.now.monotonic + kSupplyPause;
    return;
  }
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("rank ", index, " (", context_.members[index].info.worker(),
                   ") was granted no publication tokens: ", why));
  for (const TokensWanted& wanted : std::exchange(rank.waiting, {})) {
    context_.Finish(wanted.call, status);
  }
}

void GroupTokens::TakeReport(const TokensReported& event) {
  if (Generation(event.report.generation()) != context_.generation) return;
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    const Member& member = context_.members[rank];
    if (member.lost || member.info.worker() != event.worker) continue;
    Request(rank, v1::TokenGrant::WORKER);
  }
}

bool GroupTokens::Answer(CommandToken token, const v1::CommandResult& result) {
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    for (auto& [holder, supply] : ranks_[rank].supplies) {
      if (!supply.round.Answer(token, result)) continue;
      EndGrant(rank, holder, result);
      return true;
    }
  }
  for (LedgerQuery& query : queries_) {
    if (!query.round.Answer(token, result)) continue;
    FinishQueries();
    return true;
  }
  return false;
}

void GroupTokens::Query(const LedgerWanted& event) {
  if (ranks_.empty() || event.generation != context_.generation) {
    context_.Finish(event.call,
                    absl::NotFoundError(absl::StrCat(
                        "no ledger of ", GenerationName(context_.name, event.generation))));
  } else if (!context_.end_reason.empty()) {
    context_.FinishWith(event.call, Ledger(nullptr));
  } else {
    queries_.push_back({event.call, context_.SendToAll(context_.times.connect_timeout,
                                                       [](int32_t, v1::WorkerCommand& command) {
                                                         command.mutable_report_tokens();
                                                       })});
    FinishQueries();
  }
}

void GroupTokens::FinishQueries() {
  const auto finished = [&](LedgerQuery& query) {
    if (!query.round.complete()) return false;
    TakeCounts(query.round);
    context_.FinishWith(query.call, Ledger(&query.round));
    return true;
  };
  queries_.erase(std::remove_if(queries_.begin(), queries_.end(), finished), queries_.end());
}

void GroupTokens::TakeCounts(const CommandRound& round) {
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    const v1::CommandResult* const result = round.result(rank);
    if (result != nullptr && result->has_tokens()) ranks_[rank].counts = result->tokens();
  }
}

v1::TokenLedger GroupTokens::Ledger(const CommandRound* round) const {
  const bool over = !context_.end_reason.empty();
  v1::TokenLedger ledger;
  ledger.set_name(GenerationName(context_.name, context_.generation));
  for (int32_t index = 0; index < static_cast<int32_t>(ranks_.size()); ++index) {
    const Rank& rank = ranks_[index];
    const v1::TokenCounts& counts = rank.counts;
    const v1::CommandResult* const result = round == nullptr ? nullptr : round->result(index);
    v1::RankTokens& tokens = *ledger.add_ranks();
    tokens.set_rank(index);
    tokens.set_granted(std::max(rank.granted, counts.held()));
    tokens.set_issued(rank.issuable.issued());
    tokens.set_drawn(counts.drawn());
    tokens.set_spent(counts.spent());
    tokens.set_burnt(over ? tokens.granted() - counts.spent()
                          : tokens.granted() - counts.held() + counts.expired());
    tokens.set_confirmed(rank.final || (result != nullptr && result->has_tokens()));
  }
  return ledger;
}

void GroupTokens::TakeLastCounts(const CommandRound& round) {
  if (context_.end_reason.empty()) return;
  TakeCounts(round);
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    const v1::CommandResult* const result = round.result(rank);
    if (result != nullptr && result->has_tokens()) ranks_[rank].final = true;
  }
}

void GroupTokens::TimePassed() {
  const absl::Duration now = context_.now.monotonic;
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
    for (auto& [holder, supply] : ranks_[rank].supplies) {
      if (now >= supply.renew_at) Request(rank, holder);
      if (now < supply.deadline) continue;
      supply.round.TimeOut("grant_tokens", context_.times.forming_timeout);
      EndGrant(rank, holder, *supply.round.result(rank));
    }
  }
  for (LedgerQuery& query : queries_) {
    if (now < query.round.deadline()) continue;
    query.round.TimeOut("report_tokens", context_.times.connect_timeout);
  }
  FinishQueries();
}

absl::Duration GroupTokens::NextDeadline() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Rank& rank : ranks_) {
    for (const auto& [holder, supply] : rank.supplies) {
      next = std::min({next, supply.deadline, supply.renew_at});
    }
  }
  for (const LedgerQuery& query : queries_) next = std::min(next, query.round.deadline());
  return next;
}

void GroupTokens::Fence() {
  const GroupFailure failure = DescribeFailure(context_.view(), {});
  for (Rank& rank : ranks_) {
    for (const TokensWanted& wanted : std::exchange(rank.waiting, {})) {
      context_.Finish(wanted.call, failure);
    }
  }
  for (const auto& [call, issue] : std::exchange(issues_, {})) context_.Finish(call, failure);
  End();
}

void GroupTokens::End() {
  const absl::Status over = absl::FailedPreconditionError(
      absl::StrCat("generation ", context_.generation.value, " is over: ", context_.end_reason));
  for (Rank& rank : ranks_) {
    for (const TokensWanted& wanted : std::exchange(rank.waiting, {})) {
      context_.Finish(wanted.call, over);
    }
    for (const auto& [holder, supply] : std::exchange(rank.supplies, {})) {
      if (!supply.round.complete()) rank.granted += supply.serials.count;
    }
  }
  for (const auto& [call, issue] : std::exchange(issues_, {})) context_.Finish(call, over);
  for (const LedgerQuery& query : std::exchange(queries_, {})) {
    TakeCounts(query.round);
    context_.FinishWith(query.call, Ledger(&query.round));
  }
}

void GroupTokens::CloseLedger() {
  if (ranks_.empty()) return;
  context_.effects.push_back(LedgerClosed{context_.generation, Ledger(nullptr)});
  ranks_.clear();
}

}  // namespace perigee
