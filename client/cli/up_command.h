// `perigee up`: a coordinator and workers on this machine, for as long as the command runs.
#ifndef PERIGEE_CLIENT_CLI_UP_COMMAND_H_
#define PERIGEE_CLIENT_CLI_UP_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kUpCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_UP_COMMAND_H_
