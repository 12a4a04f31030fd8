// `perigee supervise`: the process that LocalCluster starts. Not for users, so --help does not show
// it.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISE_COMMAND_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISE_COMMAND_H_

#include <string>
#include <vector>

#include "client/cli/cluster/supervisor_options.h"
#include "client/cli/command.h"

namespace perigee {

extern const Command kSuperviseCommand;

// Its arguments, the command's name first. The descriptors are those of the new process.
std::vector<std::string> SuperviseArguments(const SupervisorOptions& options, int events_fd,
                                            int parent_fd);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISE_COMMAND_H_
