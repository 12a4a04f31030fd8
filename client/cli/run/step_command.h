// `perigee run moe-step`: a training step of a stack of layers through a service, forward and
// backward, compared with double precision.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_COMMAND_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kRunStepCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_COMMAND_H_
