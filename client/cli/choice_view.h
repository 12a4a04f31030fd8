// The path that a buffer's rows took last, as people and programs see it.
#ifndef PERIGEE_CLIENT_CLI_CHOICE_VIEW_H_
#define PERIGEE_CLIENT_CLI_CHOICE_VIEW_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/output.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

// None where no program has told its path.
std::vector<std::pair<std::string, std::string>> PathFacts(const v1::Buffer& buffer);
// The key path_choice; null where no program has told it.
void WritePathChoice(const v1::Buffer& buffer, JsonWriter& json);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CHOICE_VIEW_H_
