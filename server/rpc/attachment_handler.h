// AttachmentService without its transport: requests to calls of the control plane, results to
// replies.
#ifndef PERIGEE_SERVER_RPC_ATTACHMENT_HANDLER_H_
#define PERIGEE_SERVER_RPC_ATTACHMENT_HANDLER_H_

#include "proto/v1/attachments.pb.h"
#include "server/control_plane.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_log.h"

namespace perigee {

// Thread-safe. Errors as in attachments.proto; every INVALID_ARGUMENT names the field.
class AttachmentHandler {
 public:
  // Both outlive it.
  AttachmentHandler(ControlPlane& control, RequestLog& log) : control_(control), log_(log) {}

  void IssueTicket(const v1::IssueAttachTicketRequest& request,
                   ReplyFunction<v1::AttachTicket> reply);

 private:
  ControlPlane& control_;
  RequestLog& log_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_ATTACHMENT_HANDLER_H_
