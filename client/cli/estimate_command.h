// `perigee estimate`: what memory a group would take, with no service running.
#ifndef PERIGEE_CLIENT_CLI_ESTIMATE_COMMAND_H_
#define PERIGEE_CLIENT_CLI_ESTIMATE_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kEstimateCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_ESTIMATE_COMMAND_H_
