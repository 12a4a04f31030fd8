// `perigee metrics`: what a cluster has to tell a monitoring system.
#ifndef PERIGEE_CLIENT_CLI_METRICS_COMMAND_H_
#define PERIGEE_CLIENT_CLI_METRICS_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kMetricsCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_METRICS_COMMAND_H_
