// TopologyService over gRPC (proto/v1/topology.proto has the contract).
#ifndef PERIGEE_SERVER_RPC_TOPOLOGY_SERVICE_H_
#define PERIGEE_SERVER_RPC_TOPOLOGY_SERVICE_H_

#include "proto/v1/topology.grpc.pb.h"
#include "server/control_plane.h"

namespace perigee {

class TopologyService final : public v1::TopologyService::CallbackService {
 public:
  // `control` outlives it.
  explicit TopologyService(ControlPlane& control) : control_(control) {}

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override;
  grpc::ServerBidiReactor<v1::KeepAliveRequest, v1::KeepAliveResponse>* KeepAlive(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerCommand>* ReceiveCommands(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::Worker* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;

 private:
  ControlPlane& control_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_TOPOLOGY_SERVICE_H_
