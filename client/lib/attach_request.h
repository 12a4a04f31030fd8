// What the holder of a ticket asks of the worker that the ticket names.
#ifndef PERIGEE_CLIENT_LIB_ATTACH_REQUEST_H_
#define PERIGEE_CLIENT_LIB_ATTACH_REQUEST_H_

#include "absl/status/statusor.h"
#include "proto/local/attach_message.h"
#include "proto/v1/attachments.pb.h"

namespace perigee {

// INVALID_ARGUMENT: a ticket that cannot be.
absl::StatusOr<AttachRequest> RequestFor(const v1::AttachTicket& ticket);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_ATTACH_REQUEST_H_
