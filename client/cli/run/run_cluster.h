// What `perigee run` runs things on: the cluster at an address, or one of its own for as long as it
// takes.
#ifndef PERIGEE_CLIENT_CLI_RUN_RUN_CLUSTER_H_
#define PERIGEE_CLIENT_CLI_RUN_RUN_CLUSTER_H_

#include <functional>
#include <stop_token>
#include <string>

#include "client/cli/cluster/supervisor_options.h"
#include "client/cli/run/progress.h"
#include "client/lib/client.h"

namespace perigee {

struct RunContext {
  Client& client;
  std::stop_token stop;   // requested by an interrupt
  RunProgress& progress;  // on stderr; messages of the cluster go there, too
  bool own_cluster = false;
};

// Calls `work` and returns its exit status, or, where the cluster cannot be had, a failure's after
// a line on stderr. address empty: a cluster of `own`. Call it while the process has one thread.
int RunOnCluster(const std::string& command, const std::string& address,
                 const SupervisorOptions& own, int32_t iterations,
                 const std::function<int(const RunContext&)>& work);

// A line on stderr for a run that has failed or was cancelled; the exit status.
int RunFailed(const std::string& command, const absl::Status& status, RunProgress& progress);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_RUN_CLUSTER_H_
