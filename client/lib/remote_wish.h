// What one rank of a remote group asks for, as a program's operation has it. Pure; not thread-safe.
#ifndef PERIGEE_CLIENT_LIB_REMOTE_WISH_H_
#define PERIGEE_CLIENT_LIB_REMOTE_WISH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/remote_plans.h"
#include "kernels/common/ids.h"
#include "proto/local/local_command.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// What a remote client is told that names an output slot.
inline constexpr char kNoRemoteSlots[] =
    "an output slot is meant, which a remote client shares no more than the shard; expected none, "
    "or a client on the worker's machine";

// Names of tensors on the workers.
inline constexpr char kRemoteHidden[] = "rank-client/hidden";
inline constexpr char kRemoteTopkExperts[] = "rank-client/topk_experts";
inline constexpr char kRemoteRouteWeights[] = "rank-client/route_weights";
inline constexpr char kRemoteOutput[] = "rank-client/output";
inline constexpr char kRemoteGatheredWeights[] = "rank-client/gathered_weights";
// Of the target of a direct publication: there is one at a time.
inline constexpr char kRemoteTarget[] = "rank-client/target";
// Of the source view, one at a time, and of its plan once more, where it is materialised.
inline constexpr char kRemoteSource[] = "rank-client/source";
inline constexpr char kRemoteMaterialised[] = "rank-client/materialised";

// Of one rank's operation, what must be the same on all of them: in words, and for the program.
struct Wish {
  std::string words;
  v1::ProgramOperation operation;
};

// Fails as a worker refuses a local client's command. operation: no bookkeeping. tokens: S.
absl::StatusOr<Wish> MakeWish(const LocalOperation& operation, RankId rank, int32_t tokens,
                              const RemotePlans& plans);

// The stable reason of such a failure: that of its payload, where it has one.
inline constexpr char kRemoteReasonPayload[] = "perigee.reason";
std::string RemoteReasonFor(const absl::Status& status);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_WISH_H_
