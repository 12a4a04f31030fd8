#include "server/rpc/group_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/group_streams.h"
#include "server/rpc/page.h"
#include "server/rpc/unary.h"

namespace perigee {
namespace {

absl::StatusOr<NewGroup> ParseNewGroup(const v1::CreateGroupRequest& request) {
  absl::Status status = ParseTenantName(request.parent()).status();
  if (status.ok() && !request.group_id().empty()) status = CheckId("group id", request.group_id());
  for (const std::string& worker : request.workers()) {
    if (status.ok()) status = ParseWorkerName(worker).status();
  }
  if (!status.ok()) return status;
  if (request.group().ranks() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group.ranks is ", request.group().ranks(), ", expected 1 or more"));
  }
  NewGroup group;
  group.tenant = request.parent();
  group.group_id = request.group_id();
  group.ranks = request.group().ranks();
  group.backend = request.group().backend().empty() ? "host" : request.group().backend();
  group.workers.assign(request.workers().begin(), request.workers().end());
  return group;
}

}  // namespace

grpc::ServerUnaryReactor* GroupService::CreateGroup(grpc::CallbackServerContext* context,
                                                    const v1::CreateGroupRequest* request,
                                                    v1::Group* response) {
  auto group = ParseNewGroup(*request);
  if (!group.ok()) return FinishWith(*context, group.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  RunOnce<v1::Group>(log_, "CreateGroup", *request, FinishLater(*context, reactor, response),
                     [&](ReplyFunction<v1::Group> reply) {
                       control_.CreateGroup(*group, ReplyWith<v1::Group>(std::move(reply)));
                     });
  return reactor;
}

grpc::ServerUnaryReactor* GroupService::GetGroup(grpc::CallbackServerContext* context,
                                                 const v1::GetGroupRequest* request,
                                                 v1::Group* response) {
  const auto name = ParseGroupName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  return FinishWith(*context, control_.GetGroup(request->name()), response);
}

grpc::ServerUnaryReactor* GroupService::ListGroups(grpc::CallbackServerContext* context,
                                                   const v1::ListGroupsRequest* request,
                                                   v1::ListGroupsResponse* response) {
  const auto tenant = ParseTenantName(request->parent());
  if (!tenant.ok()) return FinishWith(*context, tenant.status());
  auto page = TakePageByName(control_.ListGroups(request->parent()), *request);
  if (!page.ok()) return FinishWith(*context, page.status());
  for (v1::Group& group : page->items) *response->add_groups() = std::move(group);
  response->set_next_page_token(page->next_page_token);
  return FinishWith(*context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::Group>* GroupService::WatchGroup(
    grpc::CallbackServerContext*, const v1::WatchGroupRequest* request) {
  return NewGroupStream(request->name(), control_);
}

grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* GroupService::ExecuteProgram(
    grpc::CallbackServerContext* context, const v1::ExecuteProgramRequest* request) {
  return NewProgramStream(*context, *request, control_);
}

grpc::ServerUnaryReactor* GroupService::DrainGroup(grpc::CallbackServerContext* context,
                                                   const v1::DrainGroupRequest* request,
                                                   v1::Group* response) {
  const auto name = ParseGroupName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  RunOnce<v1::Group>(log_, "DrainGroup", *request, FinishLater(*context, reactor, response),
                     [&](ReplyFunction<v1::Group> reply) {
                       control_.DrainGroup(request->name(), false,
                                           ReplyWith<v1::Group>(std::move(reply)));
                     });
  return reactor;
}

grpc::ServerUnaryReactor* GroupService::DeleteGroup(grpc::CallbackServerContext* context,
                                                    const v1::DeleteGroupRequest* request,
                                                    v1::DeleteGroupResponse* response) {
  const auto name = ParseGroupName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  using Response = v1::DeleteGroupResponse;
  RunOnce<Response>(log_, "DeleteGroup", *request, FinishLater(*context, reactor, response),
                    [&](ReplyFunction<Response> reply) {
                      control_.DrainGroup(request->name(), true,
                                          ReplyEmpty<Response>(std::move(reply)));
                    });
  return reactor;
}

}  // namespace perigee
