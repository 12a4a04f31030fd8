// What the ranks of a remote group keep on the workers: plans, and the targets of direct
// publications. Each rank has numbers of its own, the workers keep one name. Not thread-safe.
#ifndef PERIGEE_CLIENT_LIB_REMOTE_PLANS_H_
#define PERIGEE_CLIENT_LIB_REMOTE_PLANS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"
#include "proto/local/local_command.h"

namespace perigee {

// Plans that one rank keeps at a time, as many as a worker keeps for a local client.
inline constexpr size_t kMaxRemotePlans = 256;

class RemotePlans {
 public:
  struct Plan {
    std::string name;
    uint64_t sequence = 0;  // of its making
  };
  struct Target {
    LocalPlanId plan;  // that it will be
    uint64_t sequence = 0;
    int32_t token_count = 0;
    bool prepared = false;  // its publication is, and has the shard for itself
  };

  explicit RemotePlans(int32_t ranks) : ranks_(ranks), targets_(ranks), sources_(ranks) {}

  // FAILED_PRECONDITION: there is none.
  absl::StatusOr<Plan> Find(RankId rank, LocalPlanId id) const;
  // RESOURCE_EXHAUSTED: the rank has as many as it can.
  absl::Status CheckRoom(RankId rank, LocalPlanId id) const;
  // The first name that no rank uses.
  std::string FreeName() const;
  // Replaces what the rank kept under that number.
  void Keep(RankId rank, LocalPlanId id, const Plan& plan) { ranks_[rank.value][id.value] = plan; }
  void Release(RankId rank, LocalPlanId id) { ranks_[rank.value].erase(id.value); }

  // The rank's, if one lives.
  absl::optional<Target>& target(RankId rank) { return targets_[rank.value]; }
  const absl::optional<Target>& target(RankId rank) const { return targets_[rank.value]; }
  bool AnyTarget() const;
  // Of the making of the rank's source view, and of its plan; 0: none lives.
  uint64_t& source(RankId rank) { return sources_[rank.value]; }
  uint64_t source(RankId rank) const { return sources_[rank.value]; }
  // FAILED_PRECONDITION: the rank's is none, or another.
  absl::StatusOr<Target> FindTarget(RankId rank, LocalPlanId id) const;

 private:
  std::vector<std::map<uint64_t, Plan>> ranks_;  // [R] by number
  std::vector<absl::optional<Target>> targets_;  // [R]
  std::vector<uint64_t> sources_;                // [R]
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_PLANS_H_
