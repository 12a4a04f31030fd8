// Guesses what a mistyped name was meant to be.
#ifndef PERIGEE_CLIENT_CLI_NEAREST_NAME_H_
#define PERIGEE_CLIENT_CLI_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace perigee {

// The known name with the fewest letters to change, or an empty string where all are too far.
std::string NearestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_NEAREST_NAME_H_
