// `perigee run`: runs something through a cluster and says how it went. Today: moe-layer.
#ifndef PERIGEE_CLIENT_CLI_RUN_RUN_COMMAND_H_
#define PERIGEE_CLIENT_CLI_RUN_RUN_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kRunCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_RUN_COMMAND_H_
