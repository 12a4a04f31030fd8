// What an attach server is told of a client, and what that client asks for, of buffer 3 in
// generation 7.
#ifndef PERIGEE_WORKER_TESTING_TEST_ATTACHMENT_H_
#define PERIGEE_WORKER_TESTING_TEST_ATTACHMENT_H_

#include <cstdint>
#include <string>

#include "kernels/layout/abi.h"
#include "proto/local/attach_message.h"
#include "proto/local/command_page.h"
#include "proto/v1/command.pb.h"

namespace perigee {

inline v1::ServeClientCommand TestServeCommand(const std::string& buffer, uint64_t id,
                                               const Ticket& ticket, uint64_t first_sequence) {
  v1::ServeClientCommand command;
  command.set_buffer(buffer);
  command.set_attachment_id(id);
  command.set_ticket(std::string(ticket.begin(), ticket.end()));
  command.mutable_life()->set_seconds(30);
  command.set_first_sequence(first_sequence);
  return command;
}

inline AttachRequest TestAttachRequest(const std::string& group, uint64_t incarnation, int32_t rank,
                                       const Ticket& ticket) {
  AttachRequest request;
  request.abi = kDataPathAbi;
  request.page_version = kCommandPageVersion;
  request.group_hash = HashGroupName(group);
  request.generation = 7;
  request.buffer = 3;
  request.incarnation = incarnation;
  request.rank = rank;
  request.ticket = ticket;
  return request;
}

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_TEST_ATTACHMENT_H_
