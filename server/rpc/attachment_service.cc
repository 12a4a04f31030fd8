#include "server/rpc/attachment_service.h"

#include "server/rpc/unary.h"

namespace perigee {

grpc::ServerUnaryReactor* AttachmentService::IssueAttachTicket(
    grpc::CallbackServerContext* context, const v1::IssueAttachTicketRequest* request,
    v1::AttachTicket* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.IssueTicket(*request, FinishLater(*context, reactor, response));
  return reactor;
}

}  // namespace perigee
