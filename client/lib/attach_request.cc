#include "client/lib/attach_request.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/layout/abi.h"
#include "proto/local/command_page.h"
#include "proto/support/resource_name.h"

namespace perigee {

absl::StatusOr<AttachRequest> RequestFor(const v1::AttachTicket& ticket) {
  const absl::StatusOr<BufferNameParts> name = ParseBufferName(ticket.buffer());
  if (!name.ok()) return name.status();
  AttachRequest request;
  request.abi = kDataPathAbi;
  request.page_version = kCommandPageVersion;
  request.group_hash = HashGroupName(name->group.group_name());
  request.generation = ticket.generation();
  request.buffer = ticket.buffer_id();
  request.rank = ticket.rank();
  if (ticket.ticket().size() != request.ticket.size() ||
      !absl::SimpleHexAtoi(ticket.incarnation(), &request.incarnation)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ticket has ", ticket.ticket().size(), " bytes, expected ",
                     request.ticket.size(), ", and incarnation '", ticket.incarnation(), "'"));
  }
  std::memcpy(request.ticket.data(), ticket.ticket().data(), request.ticket.size());
  return request;
}

}  // namespace perigee
