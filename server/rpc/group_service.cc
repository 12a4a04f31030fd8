#include "server/rpc/group_service.h"

#include "server/rpc/group_streams.h"
#include "server/rpc/unary.h"

namespace perigee {

grpc::ServerUnaryReactor* GroupService::CreateGroup(grpc::CallbackServerContext* context,
                                                    const v1::CreateGroupRequest* request,
                                                    v1::Group* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.Create(*request, FinishLater(*context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* GroupService::GetGroup(grpc::CallbackServerContext* context,
                                                 const v1::GetGroupRequest* request,
                                                 v1::Group* response) {
  return FinishWith(*context, handler_.Get(*request), response);
}

grpc::ServerUnaryReactor* GroupService::ListGroups(grpc::CallbackServerContext* context,
                                                   const v1::ListGroupsRequest* request,
                                                   v1::ListGroupsResponse* response) {
  return FinishWith(*context, handler_.List(*request), response);
}

grpc::ServerWriteReactor<v1::Group>* GroupService::WatchGroup(
    grpc::CallbackServerContext*, const v1::WatchGroupRequest* request) {
  return NewGroupStream(*request, handler_);
}

grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* GroupService::ExecuteProgram(
    grpc::CallbackServerContext* context, const v1::ExecuteProgramRequest* request) {
  return NewProgramStream(*context, *request, handler_);
}

grpc::ServerUnaryReactor* GroupService::DrainGroup(grpc::CallbackServerContext* context,
                                                   const v1::DrainGroupRequest* request,
                                                   v1::Group* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.Drain(*request, FinishLater(*context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* GroupService::DeleteGroup(grpc::CallbackServerContext* context,
                                                    const v1::DeleteGroupRequest* request,
                                                    v1::DeleteGroupResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.Delete(*request, FinishLater(*context, reactor, response));
  return reactor;
}

}  // namespace perigee
