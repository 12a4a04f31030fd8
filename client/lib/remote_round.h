// What the ranks of a remote group ask for at one time, made into the one operation that a program
// runs on all of them, or told to them as a worker would tell a local client. Pure; not
// thread-safe.
#ifndef PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_
#define PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// Names of tensors on the workers.
inline constexpr char kRemoteHidden[] = "rank-client/hidden";
inline constexpr char kRemoteTopkExperts[] = "rank-client/topk_experts";
inline constexpr char kRemoteRouteWeights[] = "rank-client/route_weights";
inline constexpr char kRemoteOutput[] = "rank-client/output";
inline constexpr char kRemoteGatheredWeights[] = "rank-client/gathered_weights";

// Plans that one rank keeps at a time, as many as a worker keeps for a local client.
inline constexpr size_t kMaxRemotePlans = 256;

// The plans of all ranks: each rank has numbers of its own, the workers keep one name.
class RemotePlans {
 public:
  struct Plan {
    std::string name;
    uint64_t sequence = 0;  // of its making
  };

  explicit RemotePlans(int32_t ranks) : ranks_(ranks) {}

  // FAILED_PRECONDITION: there is none.
  absl::StatusOr<Plan> Find(RankId rank, LocalPlanId id) const;
  // RESOURCE_EXHAUSTED: the rank has as many as it can.
  absl::Status CheckRoom(RankId rank, LocalPlanId id) const;
  // The first name that no rank uses.
  std::string FreeName() const;
  // Replaces what the rank kept under that number.
  void Keep(RankId rank, LocalPlanId id, const Plan& plan) { ranks_[rank.value][id.value] = plan; }
  void Release(RankId rank, LocalPlanId id) { ranks_[rank.value].erase(id.value); }

 private:
  std::vector<std::map<uint64_t, Plan>> ranks_;  // [R] by number
};

// Whether it concerns nobody but its rank and no worker: such an operation waits for nobody.
bool IsBookkeeping(const LocalOperation& operation);
// Does it, and says how it ended.
LocalCompletion KeepBooks(const LocalOperation& operation, RankId rank, RemotePlans& plans);

struct RemoteRound {
  // [R] how a rank's operation ends without a program; none: it takes part, or waits for the next
  // round.
  std::vector<absl::optional<LocalCompletion>> told;
  // What all ranks run; none where any rank was told something.
  absl::optional<v1::ProgramOperation> operation;
  // Of the plan that it makes; empty: none.
  std::string new_plan;
};

// operations: [R], one of each rank, no bookkeeping. Where some but not all run experts, those are
// refused; where ranks mean different operations all are told of it (DISAGREEMENT); where one
// cannot take part it is told why and the others that it has declined (DECLINED).
RemoteRound DecideRound(absl::Span<const LocalOperation> operations, int32_t tokens,
                        const RemotePlans& plans);

// A failure as a completion has it.
LocalCompletion Refusal(absl::Status status, const char* reason);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_ROUND_H_
