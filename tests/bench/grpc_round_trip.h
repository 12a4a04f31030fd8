// What an empty call takes over gRPC between two processes of this machine: what a local client
// would pay for each operation without a command ring.
#ifndef PERIGEE_TESTS_BENCH_GRPC_ROUND_TRIP_H_
#define PERIGEE_TESTS_BENCH_GRPC_ROUND_TRIP_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace perigee {

// A process that answers one unary call with an empty message, on a Unix socket and on TCP.
class EmptyCallServer {
 public:
  // Forks: this process has not used gRPC yet.
  EmptyCallServer();
  ~EmptyCallServer();
  EmptyCallServer(const EmptyCallServer&) = delete;
  EmptyCallServer& operator=(const EmptyCallServer&) = delete;

  std::string unix_address() const { return "unix:" + directory_ + "/socket"; }
  std::string tcp_address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
  std::string directory_;
};

// [rounds] of calls one after the other, by one thread, when the connection is warm.
std::vector<absl::Duration> TimeEmptyCalls(const std::string& address, int rounds);

}  // namespace perigee

#endif  // PERIGEE_TESTS_BENCH_GRPC_ROUND_TRIP_H_
