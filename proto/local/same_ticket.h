// Comparing secrets.
#ifndef PERIGEE_PROTO_LOCAL_SAME_TICKET_H_
#define PERIGEE_PROTO_LOCAL_SAME_TICKET_H_

#include <cstddef>
#include <cstdint>

#include "proto/local/descriptor_message.h"

namespace perigee {

// In a time that does not tell how much of it was right.
inline bool SameTicket(const Ticket& a, const Ticket& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_SAME_TICKET_H_
