// A group as one of its ranks sees it: what messages name.
#ifndef PERIGEE_WORKER_OPS_GROUP_VIEW_H_
#define PERIGEE_WORKER_OPS_GROUP_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/ids.h"

namespace perigee {

struct GroupView {
  std::string group;  // tenants/{t}/groups/{g}
  Generation generation;
  RankId rank;                       // this one
  std::vector<std::string> workers;  // [R] workers/{w}

  // "rank 2 (workers/w2)"; for what is no rank of the group only its number.
  std::string Describe(int32_t of) const {
    if (of < 0 || of >= static_cast<int32_t>(workers.size())) return absl::StrCat("rank ", of);
    return absl::StrCat("rank ", of, " (", workers[of], ")");
  }
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_GROUP_VIEW_H_
