// GroupService over gRPC (proto/v1/groups.proto has the contract).
#ifndef PERIGEE_SERVER_RPC_GROUP_SERVICE_H_
#define PERIGEE_SERVER_RPC_GROUP_SERVICE_H_

#include "proto/v1/groups.grpc.pb.h"
#include "server/control_plane.h"
#include "server/rpc/group_handler.h"
#include "server/rpc/request_log.h"

namespace perigee {

class GroupService final : public v1::GroupService::CallbackService {
 public:
  // Both outlive it.
  GroupService(ControlPlane& control, RequestLog& log) : handler_(control, log) {}

  grpc::ServerUnaryReactor* CreateGroup(grpc::CallbackServerContext* context,
                                        const v1::CreateGroupRequest* request,
                                        v1::Group* response) override;
  grpc::ServerUnaryReactor* GetGroup(grpc::CallbackServerContext* context,
                                     const v1::GetGroupRequest* request,
                                     v1::Group* response) override;
  grpc::ServerUnaryReactor* ListGroups(grpc::CallbackServerContext* context,
                                       const v1::ListGroupsRequest* request,
                                       v1::ListGroupsResponse* response) override;
  grpc::ServerWriteReactor<v1::Group>* WatchGroup(grpc::CallbackServerContext* context,
                                                  const v1::WatchGroupRequest* request) override;
  grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* ExecuteProgram(
      grpc::CallbackServerContext* context, const v1::ExecuteProgramRequest* request) override;
  grpc::ServerUnaryReactor* DrainGroup(grpc::CallbackServerContext* context,
                                       const v1::DrainGroupRequest* request,
                                       v1::Group* response) override;
  grpc::ServerUnaryReactor* DeleteGroup(grpc::CallbackServerContext* context,
                                        const v1::DeleteGroupRequest* request,
                                        v1::DeleteGroupResponse* response) override;

 private:
  GroupHandler handler_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_GROUP_SERVICE_H_
