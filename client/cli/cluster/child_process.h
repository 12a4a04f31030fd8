// Starts programs as children that do not outlive who started them.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_CHILD_PROCESS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace perigee {

struct ChildOptions {
  std::string path;
  std::vector<std::string> args;  // argv, argv[0] included
  std::vector<int> keep;          // descriptors it inherits under their numbers; borrowed
  int output_fd = -1;  // its standard output and error go there; borrowed; -1: /dev/null, log_path
  std::string log_path;          // its standard error is appended there; empty: it has the caller's
  bool own_session = false;      // out of reach of the terminal's signals and of kills of the group
  bool die_with_parent = false;  // SIGTERM when the calling thread ends
};

// Forks and executes; standard input and output are /dev/null. Call it while the process has one
// thread. An error says why the program could not be executed.
absl::StatusOr<pid_t> StartChild(const ChildOptions& options);

// How a child ended, from waitpid's status: "exited with status 3", "was killed by signal 9
// (Killed)".
std::string DescribeExit(int wait_status);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_CHILD_PROCESS_H_
