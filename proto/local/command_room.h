// How many commands may be under way, as every way to a rank has it.
#ifndef PERIGEE_PROTO_LOCAL_COMMAND_ROOM_H_
#define PERIGEE_PROTO_LOCAL_COMMAND_ROOM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/local/command_page.h"

namespace perigee {

// For commands to be submitted together, all or none, of which the oldest under way is the
// `completed`th. INVALID_ARGUMENT: there is none, or more than can ever be under way;
// RESOURCE_EXHAUSTED: there is no room for all of them before the one that is named has ended.
inline absl::Status CheckRoom(size_t count, uint64_t under_way, uint64_t completed) {
  if (count == 0 || count > kCommandSlots) {
    return absl::InvalidArgumentError(absl::StrCat(count, " commands are to be submitted together,",
                                                   " expected 1 to ", kCommandSlots));
  }
  if (under_way + count <= kCommandSlots) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      under_way, " commands are under way, and ", count, " more would be more than ", kCommandSlots,
      "; wait for command ", completed + under_way + count - kCommandSlots - 1));
}

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_COMMAND_ROOM_H_
