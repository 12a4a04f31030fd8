// How a call fails because of ranks: one status for the call, and every rank's own word beside it.
// Pure.
#ifndef PERIGEE_SERVER_GROUPS_GROUP_FAILURE_H_
#define PERIGEE_SERVER_GROUPS_GROUP_FAILURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/common/ids.h"
#include "proto/v1/command.pb.h"
#include "proto/v1/error.pb.h"

namespace perigee {

// A rank of a group as the coordinator keeps it.
struct Member {
  v1::GroupMember info;
  bool lost = false;
  std::string lost_reason;  // "its connection broke"
};

// A life of a group: who it consists of and, once it is over, why.
struct GenerationView {
  std::string group;
  Generation generation;
  const std::vector<Member>& members;
  std::string end_reason;  // empty: it lives
};

struct GroupFailure {
  absl::Status status;
  v1::GroupError error;
};

// "rank 3 (workers/w3) was lost in generation 7: its connection broke", of all lost ranks; empty if
// there is none.
std::string DescribeLoss(const std::vector<Member>& members, Generation generation);

// What a call comes to that these ranks answered; ranks that are left out or whose status is OK had
// no part in it.
//   a rank is lost: UNAVAILABLE naming it.
//   else, of the ranks that failed, the one whose word explains the others' (a rank that declined,
//     was cancelled or aborted only follows another), the lowest such rank: its code and message,
//     the rank and its worker named.
//   else: UNAVAILABLE with the reason why the generation ended.
// In `error` every rank of an ended generation that has no other word is UNAVAILABLE,
// GENERATION_ABORTED, and lost ones are RANK_LOST. No message names the rank that it is the word
// of: rank and worker stand beside it.
GroupFailure DescribeFailure(const GenerationView& generation,
                             const std::vector<v1::RankStatus>& statuses);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_GROUP_FAILURE_H_
