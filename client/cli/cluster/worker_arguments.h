// The command line of one worker of a local cluster.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_WORKER_ARGUMENTS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_WORKER_ARGUMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/cluster/supervisor_options.h"

namespace perigee {

// {w} of workers/{w}.
std::string WorkerName(int32_t rank);

// argv, argv[0] included, without the descriptors that ManagedChild adds.
std::vector<std::string> WorkerArguments(const SupervisorOptions& options, int32_t rank,
                                         const std::string& coordinator_address,
                                         const std::string& socket_dir);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_WORKER_ARGUMENTS_H_
