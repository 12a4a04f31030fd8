#include "server/rpc/group_handler.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/field_check.h"
#include "server/rpc/page.h"

namespace perigee {
namespace {

absl::Status CheckName(const std::string& name) {
  return InField("name", ParseGroupName(name).status());
}

absl::Status CheckTransport(const NewGroup& group) {
  if (group.transport == "nvlink") return absl::OkStatus();
  if (group.transport != "nccl") {
    return absl::InvalidArgumentError(absl::StrCat(
        "group.transport is '", group.transport.substr(0, 32), "', expected nvlink or nccl"));
  }
  if (group.backend == "cuda") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("group.transport is nccl, which backend ",
                                                 group.backend,
                                                 " does not have, expected backend cuda"));
}

absl::Status CheckPathChoice(const v1::PathChoice& choice) {
  constexpr size_t kMaxCellBytes = 1024;
  constexpr size_t kMaxReasonBytes = 4096;
  const std::string& path = choice.path();
  if (path != "ordinary" && path != "direct" && path != "direct_overlapped" && path != "pull") {
    return absl::InvalidArgumentError(
        absl::StrCat("path is '", path.substr(0, 32),
                     "', expected ordinary, direct, direct_overlapped or pull"));
  }
  if (choice.basis() == v1::PathChoice::BASIS_UNSPECIFIED ||
      !v1::PathChoice::Basis_IsValid(choice.basis())) {
    return absl::InvalidArgumentError(
        absl::StrCat("basis is ", static_cast<int>(choice.basis()),
                     ", expected DEFAULT, ASKED_FOR, MEASURED or NOT_MEASURED"));
  }
  const auto check = [](const char* field, size_t size, size_t most) {
    if (size <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", size, " bytes, expected ", most, " at most"));
  };
  const absl::Status cell = check("cell", choice.cell().size(), kMaxCellBytes);
  return cell.ok() ? check("reason", choice.reason().size(), kMaxReasonBytes) : cell;
}

}  // namespace

absl::StatusOr<NewGroup> ParseNewGroup(const v1::CreateGroupRequest& request) {
  absl::Status status = InField("parent", ParseTenantName(request.parent()).status());
  if (status.ok() && !request.group_id().empty()) status = CheckId("group_id", request.group_id());
  for (const std::string& worker : request.workers()) {
    if (status.ok()) status = InField("workers", ParseWorkerName(worker).status());
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
  group.transport = request.group().transport().empty() ? "nvlink" : request.group().transport();
  if (status = CheckTransport(group); !status.ok()) return status;
  group.workers.assign(request.workers().begin(), request.workers().end());
  return group;
}

void GroupHandler::Create(const v1::CreateGroupRequest& request, ReplyFunction<v1::Group> reply) {
  const auto group = ParseNewGroup(request);
  if (!group.ok()) return reply({group.status(), {}, {}});
  RunOnce<v1::Group>(log_, "CreateGroup", request, reply, [&](ReplyFunction<v1::Group> first) {
    control_.CreateGroup(*group, ReplyWith<v1::Group>(std::move(first)));
  });
}

void GroupHandler::Drain(const v1::DrainGroupRequest& request, ReplyFunction<v1::Group> reply) {
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return reply({name, {}, {}});
  RunOnce<v1::Group>(log_, "DrainGroup", request, reply, [&](ReplyFunction<v1::Group> first) {
    control_.DrainGroup(request.name(), false, ReplyWith<v1::Group>(std::move(first)));
  });
}

void GroupHandler::Delete(const v1::DeleteGroupRequest& request,
                          ReplyFunction<v1::DeleteGroupResponse> reply) {
  using Response = v1::DeleteGroupResponse;
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return reply({name, {}, {}});
  RunOnce<Response>(log_, "DeleteGroup", request, reply, [&](ReplyFunction<Response> first) {
    control_.DrainGroup(request.name(), true, ReplyEmpty<Response>(std::move(first)));
  });
}

absl::StatusOr<v1::Group> GroupHandler::Get(const v1::GetGroupRequest& request) const {
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return name;
  return control_.GetGroup(request.name());
}

absl::StatusOr<v1::ListGroupsResponse> GroupHandler::List(
    const v1::ListGroupsRequest& request) const {
  const absl::Status parent = InField("parent", ParseTenantName(request.parent()).status());
  if (!parent.ok()) return parent;
  auto page = TakePageByName(control_.ListGroups(request.parent()), request);
  if (!page.ok()) return page.status();
  v1::ListGroupsResponse response;
  for (v1::Group& group : page->items) *response.add_groups() = std::move(group);
  response.set_next_page_token(page->next_page_token);
  return response;
}

absl::StatusOr<WatchId> GroupHandler::Watch(const v1::WatchGroupRequest& request,
                                            std::shared_ptr<GroupSink> sink) {
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return name;
  return control_.WatchGroup(request.name(), std::move(sink));
}

CallId GroupHandler::Execute(const v1::ExecuteProgramRequest& request,
                             std::shared_ptr<ProgramSink> sink) {
  absl::Status status = InField("buffer", ParseBufferName(request.buffer()).status());
  if (status.ok() && request.has_path_choice()) {
    status = InField("path_choice", CheckPathChoice(request.path_choice()));
  }
  if (status.ok()) return control_.ExecuteProgram(request, std::move(sink));
  sink->Finish({status, {}, {}});
  return 0;
}

}  // namespace perigee
