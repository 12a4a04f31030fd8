// What the model test of groups knows of publication tokens: plays the store, and checks that no
// serial is granted or issued twice, that nothing is granted or issued before it is durable, and
// that every ledger adds up.
#ifndef PERIGEE_SERVER_GROUPS_TOKEN_CHECK_H_
#define PERIGEE_SERVER_GROUPS_TOKEN_CHECK_H_

#include <deque>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/optional.h"
#include "gtest/gtest.h"
#include "server/groups/group_events.h"

namespace perigee {

class TokenCheck {
 public:
  std::vector<FirstTokens> FirstOf(size_t ranks) {
    std::vector<FirstTokens> tokens;
    for (size_t rank = 0; rank < ranks; ++rank) tokens.push_back({TokenKey(), NextSerials()});
    return tokens;
  }
  static TokensWanted Want(CallId call, const std::string& buffer, int rank, int count) {
    return {call, buffer, Generation(0), rank, static_cast<uint64_t>(count), "request", ""};
  }
  static TokensReported Low(int worker, uint64_t generation) {
    TokensReported report{"workers/w" + std::to_string(worker), {}};
    report.report.set_generation(generation);
    return report;
  }
  // What the store answers next; null: nothing is asked of it. `fails`: it could not be written.
  absl::optional<GroupEvent> StoreAnswer(bool fails) {
    if (asked_.empty()) return absl::nullopt;
    const auto asked = asked_.front();
    asked_.pop_front();
    const absl::Status status = fails ? absl::UnavailableError("disk") : absl::OkStatus();
    if (const auto* record = std::get_if<RecordIssue>(&asked)) {
      if (status.ok()) durable_.insert(record->issue.serials.first);
      return GroupEvent(IssueRecorded{record->call, status});
    }
    const auto& take = std::get<TakeSerials>(asked);
    using Taken = absl::StatusOr<SerialRange>;
    return GroupEvent(
        SerialsTaken{take.rank, take.holder, status.ok() ? Taken(NextSerials()) : Taken(status)});
  }

  void See(const TakeSerials& take) { asked_.push_back(take); }
  void See(const RecordIssue& record) {
    const SerialRange& serials = record.issue.serials;
    EXPECT_EQ(for_clients_.count((serials.first - 1) / kRange), 1u) << "of a range not for clients";
    for (uint64_t i = 0; i < serials.count; ++i) {
      EXPECT_TRUE(issued_.insert(serials.first + i).second) << "issued twice";
    }
    asked_.push_back(record);
  }
  void See(const SendCommand& send) {
    const v1::WorkerCommand& command = send.command;
    const v1::TokenGrant& grant =
        command.has_grant_tokens() ? command.grant_tokens() : command.open_session().tokens();
    if (grant.count() == 0) return;
    EXPECT_EQ(grant.key().empty(), command.has_grant_tokens()) << "the key goes once";
    EXPECT_LE(grant.first_serial() + grant.count() - 1, last_serial_) << "not durable";
    const uint64_t range = (grant.first_serial() - 1) / kRange;
    EXPECT_TRUE(granted_.insert(range).second) << "granted twice";
    if (grant.holder() == v1::TokenGrant::CLIENTS) for_clients_.insert(range);
  }
  void See(const FinishCall& finish) {
    const auto* response = std::get_if<v1::IssueTokensResponse>(&finish.result.response);
    if (response == nullptr) return;
    EXPECT_EQ(durable_.count(response->first_serial()), 1u) << "given away before it was durable";
  }
  void See(const LedgerClosed& closed) {
    for (const v1::RankTokens& rank : closed.ledger.ranks()) {
      EXPECT_GE(rank.granted(), kRange);
      EXPECT_EQ(rank.granted(), rank.spent() + rank.burnt());
    }
  }

 private:
  static constexpr uint64_t kRange = 4;  // so few that clients use one up

  SerialRange NextSerials() {
    last_serial_ += kRange;
    return {last_serial_ - kRange + 1, kRange};
  }

  uint64_t last_serial_ = 0;
  std::deque<std::variant<TakeSerials, RecordIssue>> asked_;
  std::set<uint64_t> granted_;      // ranges
  std::set<uint64_t> for_clients_;  // ranges
  std::set<uint64_t> issued_;       // serials
  std::set<uint64_t> durable_;      // first serials of issues
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_TOKEN_CHECK_H_
