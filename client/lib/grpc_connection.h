// A Connection over gRPC: one channel to one coordinator, plain text.
#ifndef PERIGEE_CLIENT_LIB_GRPC_CONNECTION_H_
#define PERIGEE_CLIENT_LIB_GRPC_CONNECTION_H_

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"
#include "proto/support/defaults.h"

namespace perigee {

struct ConnectOptions {
  std::string address;  // HOST:PORT of the coordinator
  absl::Duration connect_timeout = kConnectTimeout;
  // A stop request cancels the calls under way and all later ones, but for those that clean up:
  // DrainGroup, DeleteGroup, DeleteBuffer.
  std::stop_token stop = {};
};

// UNAVAILABLE or DEADLINE_EXCEEDED naming the address where nothing serves there.
absl::StatusOr<std::unique_ptr<Connection>> ConnectGrpc(const ConnectOptions& options);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_GRPC_CONNECTION_H_
