// A worker as the coordinator's services see it: registers and holds both streams over gRPC, and
// answers commands.
#ifndef PERIGEE_SERVER_TESTING_GRPC_WORKER_H_
#define PERIGEE_SERVER_TESTING_GRPC_WORKER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/v1/topology.grpc.pb.h"

namespace perigee {

// Thread-safe.
class GrpcWorker {
 public:
  using Kind = v1::WorkerCommand::CommandCase;

  // Registers and opens both streams. `life` makes the incarnation.
  GrpcWorker(const std::shared_ptr<grpc::Channel>& channel, int index, int life = 1);
  ~GrpcWorker();  // Kill
  GrpcWorker(const GrpcWorker&) = delete;
  GrpcWorker& operator=(const GrpcWorker&) = delete;

  // Commands of this kind are not answered until Release; programs end with their generation, too.
  void Hold(Kind kind);
  void Release();
  // Blocks until a command of the kind has come, at most 20 s.
  bool Await(Kind kind);
  size_t Count(Kind kind) const;
  // All that have come, in order.
  std::vector<v1::WorkerCommand> Commands() const;
  // Breaks the command stream and opens another one under the same incarnation.
  void ReopenCommands();
  // Both streams break.
  void Kill();

 private:
  using CommandStream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerCommand>;
  using LeaseStream = grpc::ClientReaderWriter<v1::KeepAliveRequest, v1::KeepAliveResponse>;

  void OpenLease();
  void OpenCommands();
  void CloseCommands();
  void Read();
  void Take(const v1::WorkerCommand& command);
  // With the mutex held, which also keeps writes apart.
  void Answer(const v1::WorkerCommand& command, const absl::Status& status);
  size_t CountSeen(Kind kind) const;

  const v1::Worker worker_;
  const std::unique_ptr<v1::TopologyService::Stub> stub_;
  grpc::ClientContext lease_context_;
  std::unique_ptr<LeaseStream> lease_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<CommandStream> commands_;
  std::thread reader_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Kind> held_kinds_;
  std::vector<v1::WorkerCommand> held_;
  std::vector<v1::WorkerCommand> seen_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_GRPC_WORKER_H_
