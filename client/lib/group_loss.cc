#include "client/lib/group_loss.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace perigee {

v1::GroupError LossOf(const v1::Group& group) {
  v1::GroupError error;
  error.set_group(group.name());
  error.set_generation(group.generation());
  *error.mutable_lost_ranks() = group.lost_ranks();
  std::vector<std::string> lost;
  for (const v1::GroupMember& member : group.members()) {
    if (std::count(group.lost_ranks().begin(), group.lost_ranks().end(), member.rank()) > 0) {
      lost.push_back(absl::StrCat("rank ", member.rank(), " (", member.worker(), ")"));
    }
  }
  const std::string message =
      absl::StrCat(absl::StrJoin(lost, ", "), lost.size() == 1 ? " was lost" : " were lost");
  for (const v1::GroupMember& member : group.members()) {
    v1::RankStatus* rank = error.add_ranks();
    rank->set_rank(member.rank());
    rank->set_worker(member.worker());
    rank->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    const bool is_lost =
        std::count(group.lost_ranks().begin(), group.lost_ranks().end(), member.rank()) > 0;
    rank->set_message(is_lost ? absl::StrCat(member.worker(), " was lost") : message);
    rank->set_reason(is_lost ? "RANK_LOST" : "GENERATION_ABORTED");
  }
  return error;
}

}  // namespace perigee
