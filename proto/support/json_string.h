// Quoting for JSON that is written by hand.
#ifndef PERIGEE_PROTO_SUPPORT_JSON_STRING_H_
#define PERIGEE_PROTO_SUPPORT_JSON_STRING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace perigee {

// The text as a JSON string, quotes included. Bytes past ASCII are kept: valid UTF-8 stays so.
std::string JsonQuote(absl::string_view text);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_JSON_STRING_H_
