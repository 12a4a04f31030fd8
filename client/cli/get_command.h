// `perigee get`, `list` and `describe`: hosts, workers, groups, buffers and generations of a
// coordinator.
#ifndef PERIGEE_CLIENT_CLI_GET_COMMAND_H_
#define PERIGEE_CLIENT_CLI_GET_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kGetCommand;
extern const Command kListCommand;
extern const Command kDescribeCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_GET_COMMAND_H_
