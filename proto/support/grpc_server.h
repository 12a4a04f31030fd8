// How every server of the project listens: one port, health and reflection on, a port in use is an
// error and not a silent second listener.
#ifndef PERIGEE_PROTO_SUPPORT_GRPC_SERVER_H_
#define PERIGEE_PROTO_SUPPORT_GRPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace perigee {

struct GrpcServerOptions {
  std::string address;                   // HOST:PORT; port 0: the system chooses
  std::vector<grpc::Service*> services;  // owned by the caller, outlive the server
};

// A listening server. Thread-safe. Its destructor shuts down at once.
class GrpcServer {
 public:
  // UNAVAILABLE naming the address where it is in use or cannot be bound; INVALID_ARGUMENT where it
  // is not HOST:PORT.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }
  // Health of one service by its full name; "" is the server as a whole.
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls, gives running ones `grace`, then cancels them. Blocks; idempotent.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_GRPC_SERVER_H_
