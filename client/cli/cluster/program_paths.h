// Where the programs of a cluster are.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_PROGRAM_PATHS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_PROGRAM_PATHS_H_

#include <string>

#include "absl/status/statusor.h"

namespace perigee {

struct ProgramPaths {
  std::string coordinator;
  std::string worker;
};

// Looked for in the directory that PERIGEE_BIN_DIR names, if it is set; else beside this program;
// else in the server and worker folders of the build tree that this program lies in. NOT_FOUND
// names what was not found and where it was looked for.
absl::StatusOr<ProgramPaths> FindPrograms();

// The file this process runs.
std::string OwnProgram();

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_PROGRAM_PATHS_H_
