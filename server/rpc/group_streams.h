// The streams that clients read about a group: what becomes of it, and how a program comes along.
#ifndef PERIGEE_SERVER_RPC_GROUP_STREAMS_H_
#define PERIGEE_SERVER_RPC_GROUP_STREAMS_H_

#include "grpcpp/grpcpp.h"
#include "proto/v1/groups.pb.h"
#include "server/rpc/group_handler.h"

namespace perigee {

// Each deletes itself when its stream has ended. `handler` outlives the server that runs them.
grpc::ServerWriteReactor<v1::Group>* NewGroupStream(const v1::WatchGroupRequest& request,
                                                    GroupHandler& handler);
grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* NewProgramStream(
    grpc::CallbackServerContext& context, const v1::ExecuteProgramRequest& request,
    GroupHandler& handler);

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_GROUP_STREAMS_H_
