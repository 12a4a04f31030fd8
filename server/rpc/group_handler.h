// GroupService without its transport: requests to calls of the control plane, results to replies.
#ifndef PERIGEE_SERVER_RPC_GROUP_HANDLER_H_
#define PERIGEE_SERVER_RPC_GROUP_HANDLER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/v1/groups.pb.h"
#include "server/control_plane.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_log.h"

namespace perigee {

// INVALID_ARGUMENT names the field.
absl::StatusOr<NewGroup> ParseNewGroup(const v1::CreateGroupRequest& request);

// Thread-safe. Errors as in groups.proto; every INVALID_ARGUMENT names the field.
class GroupHandler {
 public:
  // Both outlive it.
  GroupHandler(ControlPlane& control, RequestLog& log) : control_(control), log_(log) {}

  void Create(const v1::CreateGroupRequest& request, ReplyFunction<v1::Group> reply);
  void Drain(const v1::DrainGroupRequest& request, ReplyFunction<v1::Group> reply);
  void Delete(const v1::DeleteGroupRequest& request, ReplyFunction<v1::DeleteGroupResponse> reply);
  absl::StatusOr<v1::Group> Get(const v1::GetGroupRequest& request) const;
  absl::StatusOr<v1::ListGroupsResponse> List(const v1::ListGroupsRequest& request) const;

  // Streams: `sink` is kept where they begin. The number is to end them by.
  absl::StatusOr<WatchId> Watch(const v1::WatchGroupRequest& request,
                                std::shared_ptr<GroupSink> sink);
  void Unwatch(WatchId watch) { control_.Unwatch(watch); }
  // `sink` hears of a refusal, too.
  CallId Execute(const v1::ExecuteProgramRequest& request, std::shared_ptr<ProgramSink> sink);
  void Cancel(CallId call) { control_.CancelProgram(call); }

 private:
  ControlPlane& control_;
  RequestLog& log_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_GROUP_HANDLER_H_
