#include "tests/bench/grpc_round_trip.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "kernels/common/check.h"
#include "proto/support/clock.h"
#include "proto/v1/health.grpc.pb.h"

namespace perigee {
namespace {

constexpr int kWarmRounds = 200;

class EmptyService final : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse*) override {
    return grpc::Status::OK;
  }
};

// Writes the port when it serves; lives until it is killed, and not longer than its parent.
[[noreturn]] void Serve(const std::string& unix_address, int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  EmptyService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddListeningPort(unix_address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  PERIGEE_CHECK(server != nullptr && write(ready, &port, sizeof(port)) == sizeof(port));
  server->Wait();
  _exit(0);
}

}  // namespace

EmptyCallServer::EmptyCallServer() {
  char directory[] = "/tmp/perigee-bench-XXXXXX";
  PERIGEE_CHECK(mkdtemp(directory) != nullptr);
  directory_ = directory;
  int ready[2];
  PERIGEE_CHECK(pipe(ready) == 0);
  pid_ = fork();
  PERIGEE_CHECK(pid_ >= 0);
  if (pid_ == 0) Serve(unix_address(), ready[1]);
  close(ready[1]);
  PERIGEE_CHECK(read(ready[0], &port_, sizeof(port_)) == sizeof(port_));
  close(ready[0]);
}

EmptyCallServer::~EmptyCallServer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(directory_);
}

std::vector<absl::Duration> TimeEmptyCalls(const std::string& address, int rounds) {
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const grpc::health::v1::HealthCheckRequest request;
  std::vector<absl::Duration> times;
  for (int round = -kWarmRounds; round < rounds; ++round) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    grpc::health::v1::HealthCheckResponse response;
    const absl::Duration start = RealClock().Monotonic();
    const grpc::Status status = stub->Check(&context, request, &response);
    PERIGEE_CHECK(status.ok());
    if (round >= 0) times.push_back(RealClock().Monotonic() - start);
  }
  return times;
}

}  // namespace perigee
