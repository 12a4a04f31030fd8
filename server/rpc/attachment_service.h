// AttachmentService over gRPC (proto/v1/attachments.proto has the contract).
#ifndef PERIGEE_SERVER_RPC_ATTACHMENT_SERVICE_H_
#define PERIGEE_SERVER_RPC_ATTACHMENT_SERVICE_H_

#include "proto/v1/attachments.grpc.pb.h"
#include "server/control_plane.h"
#include "server/rpc/attachment_handler.h"
#include "server/rpc/request_log.h"

namespace perigee {

class AttachmentService final : public v1::AttachmentService::CallbackService {
 public:
  // Both outlive it.
  AttachmentService(ControlPlane& control, RequestLog& log) : handler_(control, log) {}

  grpc::ServerUnaryReactor* IssueAttachTicket(grpc::CallbackServerContext* context,
                                              const v1::IssueAttachTicketRequest* request,
                                              v1::AttachTicket* response) override;

 private:
  AttachmentHandler handler_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_ATTACHMENT_SERVICE_H_
