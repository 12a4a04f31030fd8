// Asks this machine's worker program something that needs CUDA. In a process of its own: the
// command links no CUDA and must be able to fork.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_WORKER_PROBE_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_WORKER_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace perigee {

struct WorkerAnswer {
  std::vector<std::string> lines;  // of both its outputs, as far as they came in time
  bool in_time = true;             // false: it had not ended, and was killed
  int wait_status = 0;             // how it ended, as waitpid says
};

// Runs the program with one flag and waits for its end, no longer than the timeout. Call it while
// the process has one thread. An error: it could not be started.
absl::StatusOr<WorkerAnswer> ProbeWorker(const std::string& worker_program, const std::string& flag,
                                         absl::Duration timeout);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_WORKER_PROBE_H_
