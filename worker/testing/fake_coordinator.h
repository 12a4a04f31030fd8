// A coordinator for tests of workers: it speaks the worker's side of the protocol and does
// otherwise what the test says. Waits of the test itself are bounded and fail it.
#ifndef PERIGEE_WORKER_TESTING_FAKE_COORDINATOR_H_
#define PERIGEE_WORKER_TESTING_FAKE_COORDINATOR_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/support/grpc_server.h"
#include "proto/v1/topology.grpc.pb.h"

namespace perigee {

// Thread-safe.
class FakeCoordinator final : private v1::TopologyService::Service {
 public:
  // port 0: any.
  explicit FakeCoordinator(const std::string& address = "127.0.0.1:0");
  ~FakeCoordinator() override;

  const std::string& address() const { return server_->address(); }

  // What registrations are answered; OK by default.
  void SetRegistration(const absl::Status& status, uint64_t term = 1);
  // Whether registrations are answered at all; those that wait are answered once it is true again,
  // or when their callers have gone.
  void AnswerRegistrations(bool answer);
  void SetLease(absl::Duration heartbeat_interval, absl::Duration lease_duration);
  // What the next heartbeat of this worker is answered with, instead of a reply.
  void EndLease(const std::string& worker, const absl::Status& status);
  void AnswerHeartbeats(bool answer);
  // Cancels the streams that this worker has now.
  void BreakStreams(const std::string& worker);

  // How often it has registered, opened its command stream, and sent heartbeats.
  struct Counts {
    int registrations = 0;
    int command_streams = 0;
    int lease_streams = 0;
    int heartbeats = 0;
    int open_streams = 0;
  };
  Counts counts(const std::string& worker) const;
  // Waits until the counts are as wanted; false after a long time.
  bool Await(const std::string& worker, const std::function<bool(const Counts&)>& wanted);
  v1::Worker registered(const std::string& worker) const;
  v1::WorkerHello last_hello(const std::string& worker) const;
  v1::KeepAliveRequest last_heartbeat(const std::string& worker) const;

  // Sends a command to a worker with an open command stream; its id (term 1 if it has none).
  uint64_t Send(const std::string& worker, v1::WorkerCommand command);
  // The result of a command; fails the test where none comes.
  v1::CommandResult AwaitResult(uint64_t command_id);
  v1::CommandResult Do(const std::string& worker, v1::WorkerCommand command) {
    return AwaitResult(Send(worker, std::move(command)));
  }
  int results(uint64_t command_id) const;

 private:
  using LeaseStream = grpc::ServerReaderWriter<v1::KeepAliveResponse, v1::KeepAliveRequest>;
  using CommandStream = grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerReport>;
  struct WorkerState {
    v1::Worker worker;
    v1::WorkerHello hello;
    v1::KeepAliveRequest heartbeat;
    Counts counts;
    CommandStream* commands = nullptr;
    std::vector<grpc::ServerContext*> contexts;
    absl::optional<absl::Status> lease_end;
  };

  grpc::Status RegisterWorker(grpc::ServerContext* context,
                              const v1::RegisterWorkerRequest* request,
                              v1::RegisterWorkerResponse* response) override;
  grpc::Status KeepAlive(grpc::ServerContext* context, LeaseStream* stream) override;
  grpc::Status ReceiveCommands(grpc::ServerContext* context, CommandStream* stream) override;
  void OpenStream(WorkerState& state, grpc::ServerContext* context);
  void CloseStream(WorkerState& state, grpc::ServerContext* context);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status registration_;
  uint64_t term_ = 1;
  absl::Duration heartbeat_interval_ = absl::Milliseconds(20);
  absl::Duration lease_duration_ = absl::Seconds(20);
  bool answer_registrations_ = true;
  bool answer_heartbeats_ = true;
  uint64_t last_command_id_ = 0;
  std::map<std::string, WorkerState> workers_;
  std::map<uint64_t, std::vector<v1::CommandResult>> results_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_FAKE_COORDINATOR_H_
