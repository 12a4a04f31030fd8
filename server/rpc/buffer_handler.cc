#include "server/rpc/buffer_handler.h"

#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/field_check.h"
#include "server/rpc/page.h"

namespace perigee {
namespace {

absl::Status CheckName(const std::string& name) {
  return InField("name", ParseBufferName(name).status());
}

// A group's name, or tenants/{t}/groups/- for all groups of a tenant.
absl::Status CheckListParent(absl::string_view parent) {
  if (absl::ConsumeSuffix(&parent, "/groups/-")) return ParseTenantName(parent).status();
  return ParseGroupName(parent).status();
}

}  // namespace

absl::StatusOr<NewBuffer> ParseNewBuffer(const v1::CreateBufferRequest& request) {
  absl::Status status = InField("parent", ParseGroupName(request.parent()).status());
  if (status.ok() && !request.buffer_id().empty()) {
    status = CheckId("buffer_id", request.buffer_id());
  }
  if (!status.ok()) return status;
  NewBuffer buffer;
  buffer.group = request.parent();
  buffer.buffer_id = request.buffer_id();
  buffer.shape = request.buffer().shape();
  buffer.operation_timeout_ms = request.buffer().operation_timeout_ms();
  buffer.warmup_timeout_ms = request.buffer().warmup_timeout_ms();
  buffer.sms = request.buffer().sms();
  buffer.local_sms = request.buffer().local_sms();
  buffer.no_programmatic_launch = request.buffer().no_programmatic_launch();
  buffer.high_priority_stream = request.buffer().high_priority_stream();
  return buffer;
}

void BufferHandler::Create(const v1::CreateBufferRequest& request,
                           ReplyFunction<v1::Buffer> reply) {
  const auto buffer = ParseNewBuffer(request);
  if (!buffer.ok()) return reply({buffer.status(), {}, {}});
  RunOnce<v1::Buffer>(log_, "CreateBuffer", request, reply, [&](ReplyFunction<v1::Buffer> first) {
    control_.CreateBuffer(*buffer, ReplyWith<v1::Buffer>(std::move(first)));
  });
}

void BufferHandler::Delete(const v1::DeleteBufferRequest& request,
                           ReplyFunction<v1::DeleteBufferResponse> reply) {
  using Response = v1::DeleteBufferResponse;
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return reply({name, {}, {}});
  RunOnce<Response>(log_, "DeleteBuffer", request, reply, [&](ReplyFunction<Response> first) {
    control_.DeleteBuffer(request.name(), ReplyEmpty<Response>(std::move(first)));
  });
}

absl::StatusOr<v1::Buffer> BufferHandler::Get(const v1::GetBufferRequest& request) const {
  const absl::Status name = CheckName(request.name());
  if (!name.ok()) return name;
  return control_.GetBuffer(request.name());
}

absl::StatusOr<v1::ListBuffersResponse> BufferHandler::List(
    const v1::ListBuffersRequest& request) const {
  const absl::Status parent = InField("parent", CheckListParent(request.parent()));
  if (!parent.ok()) return parent;
  auto buffers = control_.ListBuffers(request.parent());
  if (!buffers.ok()) return buffers.status();
  auto page = TakePageByName(*std::move(buffers), request);
  if (!page.ok()) return page.status();
  v1::ListBuffersResponse response;
  for (v1::Buffer& buffer : page->items) *response.add_buffers() = std::move(buffer);
  response.set_next_page_token(page->next_page_token);
  return response;
}

}  // namespace perigee
