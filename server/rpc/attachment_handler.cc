#include "server/rpc/attachment_handler.h"

#include <utility>

#include "proto/support/resource_name.h"
#include "server/rpc/call_reply.h"
#include "server/rpc/field_check.h"

namespace perigee {

void AttachmentHandler::IssueTicket(const v1::IssueAttachTicketRequest& request,
                                    ReplyFunction<v1::AttachTicket> reply) {
  using Response = v1::AttachTicket;
  const absl::Status name = InField("buffer", ParseBufferName(request.buffer()).status());
  if (!name.ok()) return reply({name, {}, {}});
  RunOnce<Response>(log_, "IssueAttachTicket", request, reply, [&](ReplyFunction<Response> first) {
    control_.IssueAttachTicket(request, ReplyWith<Response>(std::move(first)));
  });
}

}  // namespace perigee
