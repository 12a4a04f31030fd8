// Every rank's own word behind a failed group call, carried from gRPC's trailing metadata into an
// absl::Status as a payload.
#ifndef PERIGEE_CLIENT_LIB_GROUP_ERROR_H_
#define PERIGEE_CLIENT_LIB_GROUP_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "proto/v1/error.pb.h"

namespace perigee {

// Key of the trailing metadata that holds a serialized v1::GroupError.
inline constexpr const char* kGroupErrorKey = "perigee-group-error-bin";

// Outcome of a call that has ended, with the server's GroupError attached if it sent one. `context`
// is the call's own.
absl::Status CallStatus(const grpc::Status& status, const grpc::ClientContext& context);

absl::Status WithGroupError(absl::Status status, const v1::GroupError& error);
// None where the failure is not one of ranks.
absl::optional<v1::GroupError> GroupErrorOf(const absl::Status& status);

// "rank 3: UNAVAILABLE: rank 5 (workers/w5) was lost".
std::string DescribeRank(const v1::RankStatus& rank);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_GROUP_ERROR_H_
