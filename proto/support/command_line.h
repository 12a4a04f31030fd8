// The command line of a program that takes only --name=value flags.
#ifndef PERIGEE_PROTO_SUPPORT_COMMAND_LINE_H_
#define PERIGEE_PROTO_SUPPORT_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace perigee {

// Sets absl flags, but only those named in `known`: --name=value or --name value. INVALID_ARGUMENT,
// one line that names the argument, for anything else and for values that a flag does not take.
// (absl's own parser would end the process with a status and a text that are not ours.)
absl::Status ParseFlags(absl::Span<const std::string> known,
                        absl::Span<const std::string> arguments);

// One line per flag with its default and help.
std::string DescribeFlags(absl::Span<const std::string> known);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_COMMAND_LINE_H_
