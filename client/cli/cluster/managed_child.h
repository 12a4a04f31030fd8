// One program of a local cluster, over all its starts: what its supervisor knows of it.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_MANAGED_CHILD_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_MANAGED_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/cli/cluster/line_pipe.h"

namespace perigee {

// Not thread-safe. Times are Clock::Monotonic.
class ManagedChild {
 public:
  // args: argv without the two descriptors' flags. The program must take --ready_fd and --death_fd.
  ManagedChild(std::string name, std::string path, std::vector<std::string> args,
               std::string log_path);

  // death_fd: the read end of a pipe that ends with the supervisor; borrowed.
  absl::Status Start(int death_fd);
  // Where it serves, once, when it has said so.
  absl::optional<std::string> TakeAddress(absl::Duration now);
  // Whether `pid` was this child; forgets it then.
  bool Reap(pid_t pid);
  // Nothing where it does not run.
  void Signal(int number) const;

  const std::string& name() const { return name_; }
  const std::string& log_path() const { return log_path_; }
  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0; }
  // It has served since its first start.
  bool has_served() const { return has_served_; }
  // How long this start has served; zero: it does not yet.
  absl::Duration Served(absl::Duration now) const;
  // For poll(): readable when there may be an address; -1 where none is awaited.
  int ready_fd() const { return ready_.fd(); }

 private:
  const std::string name_;
  const std::string path_;
  const std::vector<std::string> args_;
  const std::string log_path_;
  pid_t pid_ = -1;
  LineReader ready_;
  absl::optional<absl::Duration> serves_since_;
  bool has_served_ = false;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_MANAGED_CHILD_H_
