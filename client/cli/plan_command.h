// `perigee plan`: plans a recorded set of routes, with no service running.
#ifndef PERIGEE_CLIENT_CLI_PLAN_COMMAND_H_
#define PERIGEE_CLIENT_CLI_PLAN_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kPlanCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_PLAN_COMMAND_H_
