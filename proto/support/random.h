// Random numbers from the kernel: incarnations, tickets, request ids. Never from a clock.
#ifndef PERIGEE_PROTO_SUPPORT_RANDOM_H_
#define PERIGEE_PROTO_SUPPORT_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace perigee {

uint64_t RandomUint64();
std::string RandomBytes(size_t count);
// 16 lower-case hex digits.
std::string Hex64(uint64_t value);
// 32 hex digits, for the request_id of one call.
std::string NewRequestId();

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_RANDOM_H_
