// The publication tokens of a group's generation that lives: grants of serials to its ranks, tokens
// issued to clients, and the ledger of both. Pure; not thread-safe.
//
//   Open:    every rank's own first serials go with OpenSession
//   supply:  a rank reports that it is low, its range has lived three quarters of its life, or
//            clients need serials -> TakeSerials (durable) -> GrantTokens to its worker -> answered
//   Issue:   serials of a range that the worker has -> RecordIssue (durable) -> signed, answered
//   Fence, End: calls end; CloseLedger, when the ranks have had their last word
//
// A range whose grant fails is burnt: it is not sent again.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_TOKENS_H_
#define PERIGEE_SERVER_GROUPS_GROUP_TOKENS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/groups/command_round.h"
#include "server/groups/group_buffers.h"
#include "server/groups/group_context.h"
#include "server/publication/issued_serials.h"

namespace perigee {

class GroupTokens {
 public:
  // Both are borrowed.
  GroupTokens(GroupContext& context, const GroupBuffers& buffers)
      : context_(context), buffers_(buffers) {}

  // A generation opens; `tokens` by rank.
  void Open(std::vector<FirstTokens> tokens);
  // What OpenSession grants to `rank`; nothing where there is nothing.
  void FillFirst(int32_t rank, v1::OpenSessionCommand& open) const;

  // In an ACTIVE group. Errors as in publication.proto.
  void Issue(const TokensWanted& event);
  void TakeRecorded(const IssueRecorded& event);
  void Take(const SerialsTaken& event);
  void TakeReport(const TokensReported& event);
  // NOT_FOUND: the generation's ledger is not here.
  void Query(const LedgerWanted& event);
  // False: the token is not of a grant or query.
  bool Answer(CommandToken token, const v1::CommandResult& result);
  // The answers to the commands that end the generation carry its last counts.
  void TakeLastCounts(const CommandRound& round);
  void TimePassed();
  absl::Duration NextDeadline() const;

  // The generation has ended, because of ranks (context.end_reason says why) or in good order.
  void Fence();
  void End();
  // No rank has anything more to say: the ledger is handed over and forgotten.
  void CloseLedger();

 private:
  struct Supply {
    bool taking = false;  // serials, from the disk
    CommandRound round;   // the grant on its way, of one rank
    SerialRange serials;  // of that grant
    absl::Duration sent_at;
    absl::Duration deadline = absl::InfiniteDuration();  // for its answer
    absl::Duration renew_at = absl::InfiniteDuration();  // when the next one is due
  };
  struct Rank {
    TokenKey key;
    SerialRange first;
    std::map<v1::TokenGrant::Holder, Supply> supplies;
    IssuedSerials issuable;
    std::deque<TokensWanted> waiting;  // for serials
    uint64_t granted = 0;              // serials, of grants that were answered
    v1::TokenCounts counts;            // the worker's last word
    bool final = false;                // and there is no later one
  };
  struct LedgerQuery {
    CallId call = 0;
    CommandRound round;
  };

  absl::Status Check(const TokensWanted& event) const;
  void Request(int32_t rank, v1::TokenGrant::Holder holder);
  void SendGrant(int32_t rank, v1::TokenGrant::Holder holder, const SerialRange& serials);
  void EndGrant(int32_t rank, v1::TokenGrant::Holder holder, const v1::CommandResult& result);
  void FailSupply(int32_t rank, v1::TokenGrant::Holder holder, const std::string& why);
  // Serves those that wait, as far as there are serials.
  void Pump(int32_t rank);
  void FinishQueries();
  // Keeps what the ranks that have answered say of themselves.
  void TakeCounts(const CommandRound& round);
  // `round`: whose ranks have just spoken; null: none.
  v1::TokenLedger Ledger(const CommandRound* round) const;

  GroupContext& context_;
  const GroupBuffers& buffers_;
  std::vector<Rank> ranks_;              // empty: no ledger is here
  std::map<CallId, TokenIssue> issues_;  // being recorded
  std::vector<LedgerQuery> queries_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_TOKENS_H_
