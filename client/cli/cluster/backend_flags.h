// The flags that say what the workers of a local cluster compute on: `up` and `run` share them.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_BACKEND_FLAGS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_BACKEND_FLAGS_H_

#include <string>

#include "client/cli/cluster/supervisor_options.h"
#include "client/cli/flags.h"

namespace perigee {

// Declares --backend, --shared-gpu and --memory-handle. The options outlive the flags.
void DeclareBackendFlags(FlagSet& flags, SupervisorOptions& options);

// Declares --transport, of commands that make a group.
void DeclareTransportFlag(FlagSet& flags, std::string& transport);

// After parsing: which of them cannot be given with this backend; empty: none. --transport
// where it was declared.
std::string BackendFlagsConflict(const FlagSet& flags, const SupervisorOptions& options,
                                 const std::string& transport = "nvlink");

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_BACKEND_FLAGS_H_
