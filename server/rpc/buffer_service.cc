#include "server/rpc/buffer_service.h"

#include <utility>

#include "absl/strings/strip.h"
#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/page.h"
#include "server/rpc/unary.h"

namespace perigee {
namespace {

absl::StatusOr<NewBuffer> ParseNewBuffer(const v1::CreateBufferRequest& request) {
  absl::Status status = ParseGroupName(request.parent()).status();
  if (status.ok() && !request.buffer_id().empty()) {
    status = CheckId("buffer id", request.buffer_id());
  }
  if (!status.ok()) return status;
  NewBuffer buffer;
  buffer.group = request.parent();
  buffer.buffer_id = request.buffer_id();
  buffer.shape = request.buffer().shape();
  buffer.operation_timeout_ms = request.buffer().operation_timeout_ms();
  return buffer;
}

// A group's name, or tenants/{t}/groups/- for all groups of a tenant.
absl::Status CheckListParent(absl::string_view parent) {
  if (absl::ConsumeSuffix(&parent, "/groups/-")) return ParseTenantName(parent).status();
  return ParseGroupName(parent).status();
}

}  // namespace

grpc::ServerUnaryReactor* BufferService::CreateBuffer(grpc::CallbackServerContext* context,
                                                      const v1::CreateBufferRequest* request,
                                                      v1::Buffer* response) {
  auto buffer = ParseNewBuffer(*request);
  if (!buffer.ok()) return FinishWith(*context, buffer.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  RunOnce<v1::Buffer>(log_, "CreateBuffer", *request, FinishLater(*context, reactor, response),
                      [&](ReplyFunction<v1::Buffer> reply) {
                        control_.CreateBuffer(*buffer, ReplyWith<v1::Buffer>(std::move(reply)));
                      });
  return reactor;
}

grpc::ServerUnaryReactor* BufferService::GetBuffer(grpc::CallbackServerContext* context,
                                                   const v1::GetBufferRequest* request,
                                                   v1::Buffer* response) {
  const auto name = ParseBufferName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  return FinishWith(*context, control_.GetBuffer(request->name()), response);
}

grpc::ServerUnaryReactor* BufferService::ListBuffers(grpc::CallbackServerContext* context,
                                                     const v1::ListBuffersRequest* request,
                                                     v1::ListBuffersResponse* response) {
  const absl::Status parent = CheckListParent(request->parent());
  if (!parent.ok()) return FinishWith(*context, parent);
  auto buffers = control_.ListBuffers(request->parent());
  if (!buffers.ok()) return FinishWith(*context, buffers.status());
  auto page = TakePageByName(*std::move(buffers), *request);
  if (!page.ok()) return FinishWith(*context, page.status());
  for (v1::Buffer& buffer : page->items) *response->add_buffers() = std::move(buffer);
  response->set_next_page_token(page->next_page_token);
  return FinishWith(*context, absl::OkStatus());
}

grpc::ServerUnaryReactor* BufferService::DeleteBuffer(grpc::CallbackServerContext* context,
                                                      const v1::DeleteBufferRequest* request,
                                                      v1::DeleteBufferResponse* response) {
  const auto name = ParseBufferName(request->name());
  if (!name.ok()) return FinishWith(*context, name.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  using Response = v1::DeleteBufferResponse;
  RunOnce<Response>(log_, "DeleteBuffer", *request, FinishLater(*context, reactor, response),
                    [&](ReplyFunction<Response> reply) {
                      control_.DeleteBuffer(request->name(),
                                            ReplyEmpty<Response>(std::move(reply)));
                    });
  return reactor;
}

}  // namespace perigee
