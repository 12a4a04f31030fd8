#include "server/groups/command_round.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {

void CommandRound::Expect(int32_t rank, CommandToken token) {
  const bool is_new = entries_.emplace(rank, Entry{token, false, {}}).second;
  PERIGEE_CHECK(is_new);
}

bool CommandRound::Answer(CommandToken token, const v1::CommandResult& result) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry.second.token == token; });
  if (found == entries_.end() || found->second.answered) return false;
  found->second.answered = true;
  found->second.result = result;
  found->second.result.mutable_status()->set_rank(found->first);
  return true;
}

void CommandRound::GiveUp(int32_t rank, const v1::RankStatus& status) {
  const auto found = entries_.find(rank);
  if (found == entries_.end() || found->second.answered) return;
  found->second.answered = true;
  *found->second.result.mutable_status() = status;
  found->second.result.mutable_status()->set_rank(rank);
}

void CommandRound::TimeOut(absl::string_view awaited, absl::Duration waited) {
  v1::RankStatus status;
  status.set_code(static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded));
  status.set_reason("DEADLINE");
  status.set_message(
      absl::StrCat("did not answer ", awaited, " within ", absl::FormatDuration(waited)));
  for (const int32_t rank : unanswered()) GiveUp(rank, status);
}

bool CommandRound::complete() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry.second.answered; });
}

bool CommandRound::all_ok() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.answered && entry.second.result.status().code() == 0;
  });
}

absl::Duration CommandRound::deadline() const {
  return complete() ? absl::InfiniteDuration() : deadline_;
}

std::vector<v1::RankStatus> CommandRound::statuses() const {
  std::vector<v1::RankStatus> statuses;
  for (const auto& [rank, entry] : entries_) {
    if (entry.answered) statuses.push_back(entry.result.status());
  }
  return statuses;
}

const v1::CommandResult* CommandRound::result(int32_t rank) const {
  const auto found = entries_.find(rank);
  return found == entries_.end() || !found->second.answered ? nullptr : &found->second.result;
}

std::vector<int32_t> CommandRound::unanswered() const {
  std::vector<int32_t> ranks;
  for (const auto& [rank, entry] : entries_) {
    if (!entry.answered) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace perigee
