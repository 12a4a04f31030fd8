// A message that is one plain struct beginning with a magic number, checked for both.
#ifndef PERIGEE_PROTO_LOCAL_FIXED_MESSAGE_H_
#define PERIGEE_PROTO_LOCAL_FIXED_MESSAGE_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace perigee {

// INVALID_ARGUMENT, beginning with `what`: wrong size or magic.
template <typename Message>
absl::StatusOr<Message> ParseFixedMessage(absl::string_view bytes, uint32_t magic,
                                          absl::string_view what) {
  static_assert(std::is_trivially_copyable_v<Message>);
  Message message;
  if (bytes.size() != sizeof(message)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", bytes.size(), " bytes, expected ", sizeof(message)));
  }
  std::memcpy(&message, bytes.data(), sizeof(message));
  if (message.magic != magic) {
    return absl::InvalidArgumentError(absl::StrCat(what, " begins with ", absl::Hex(message.magic),
                                                   ", expected ", absl::Hex(magic)));
  }
  return message;
}

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_FIXED_MESSAGE_H_
