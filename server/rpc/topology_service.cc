#include "server/rpc/topology_service.h"

#include <utility>

#include "proto/support/resource_name.h"
#include "server/rpc/field_check.h"
#include "server/rpc/page.h"
#include "server/rpc/unary.h"
#include "server/rpc/worker_streams.h"

namespace perigee {

grpc::ServerUnaryReactor* TopologyService::RegisterWorker(grpc::CallbackServerContext* context,
                                                          const v1::RegisterWorkerRequest* request,
                                                          v1::RegisterWorkerResponse* response) {
  return FinishWith(*context, control_.RegisterWorker(request->worker()), response);
}

grpc::ServerBidiReactor<v1::KeepAliveRequest, v1::KeepAliveResponse>* TopologyService::KeepAlive(
    grpc::CallbackServerContext* context) {
  return NewLeaseStream(*context, control_);
}

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerCommand>* TopologyService::ReceiveCommands(
    grpc::CallbackServerContext* context) {
  return NewCommandStream(*context, control_);
}

grpc::ServerUnaryReactor* TopologyService::GetWorker(grpc::CallbackServerContext* context,
                                                     const v1::GetWorkerRequest* request,
                                                     v1::Worker* response) {
  const absl::Status name = InField("name", ParseWorkerName(request->name()).status());
  if (!name.ok()) return FinishWith(*context, name);
  return FinishWith(*context, control_.GetWorker(request->name()), response);
}

grpc::ServerUnaryReactor* TopologyService::ListWorkers(grpc::CallbackServerContext* context,
                                                       const v1::ListWorkersRequest* request,
                                                       v1::ListWorkersResponse* response) {
  auto page = TakePageByName(control_.ListWorkers(), *request);
  if (!page.ok()) return FinishWith(*context, page.status());
  for (v1::Worker& worker : page->items) *response->add_workers() = std::move(worker);
  response->set_next_page_token(page->next_page_token);
  return FinishWith(*context, absl::OkStatus());
}

}  // namespace perigee
