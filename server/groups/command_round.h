// One command to several ranks of a group and what each has answered. Pure data.
#ifndef PERIGEE_SERVER_GROUPS_COMMAND_ROUND_H_
#define PERIGEE_SERVER_GROUPS_COMMAND_ROUND_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/v1/command.pb.h"
#include "proto/v1/error.pb.h"

namespace perigee {

// Names a command inside its group; 0 names none.
using CommandToken = uint64_t;

class CommandRound {
 public:
  CommandRound() = default;  // nothing is awaited
  // Whoever has not answered by `deadline` is given up with TimeOut.
  explicit CommandRound(absl::Duration deadline) : deadline_(deadline) {}

  // `rank` was sent the command. Once per rank, of members in order of rank.
  void Expect(int32_t rank, CommandToken token);
  // Takes the answer. False: the token is of another round, or its rank has answered already.
  bool Answer(CommandToken token, const v1::CommandResult& result);
  // Gives `rank` up with `status` unless it has answered or was not asked.
  void GiveUp(int32_t rank, const v1::RankStatus& status);
  // Gives up every rank that has not answered: DEADLINE_EXCEEDED, what was `awaited` and how long.
  void TimeOut(absl::string_view awaited, absl::Duration waited);

  bool complete() const;
  bool all_ok() const;
  // While it is not complete; absl::InfiniteDuration() otherwise.
  absl::Duration deadline() const;
  // Of the ranks that have answered, in order.
  std::vector<v1::RankStatus> statuses() const;
  // Of a rank that has answered, else null.
  const v1::CommandResult* result(int32_t rank) const;
  std::vector<int32_t> unanswered() const;
  bool asked(int32_t rank) const { return entries_.count(rank) > 0; }

 private:
  struct Entry {
    CommandToken token = 0;
    bool answered = false;
    v1::CommandResult result;
  };
  std::map<int32_t, Entry> entries_;  // by rank
  absl::Duration deadline_ = absl::InfiniteDuration();
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_COMMAND_ROUND_H_
