// absl::Status and grpc::Status, the one place where one becomes the other. The codes are equal.
#ifndef PERIGEE_PROTO_SUPPORT_GRPC_STATUS_H_
#define PERIGEE_PROTO_SUPPORT_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace perigee {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_GRPC_STATUS_H_
