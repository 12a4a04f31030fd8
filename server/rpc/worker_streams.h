// The two streams that a worker holds, as gRPC reactors: its lease and its commands.
#ifndef PERIGEE_SERVER_RPC_WORKER_STREAMS_H_
#define PERIGEE_SERVER_RPC_WORKER_STREAMS_H_

#include "grpcpp/grpcpp.h"
#include "proto/v1/topology.pb.h"
#include "server/control_plane.h"

namespace perigee {

// Each deletes itself when its stream has ended. `control` outlives the server that runs them.
grpc::ServerBidiReactor<v1::KeepAliveRequest, v1::KeepAliveResponse>* NewLeaseStream(
    grpc::CallbackServerContext& context, ControlPlane& control);
grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerCommand>* NewCommandStream(
    grpc::CallbackServerContext& context, ControlPlane& control);

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_WORKER_STREAMS_H_
