// A coordinator and workers on this machine, owned by a supervisor process that this one starts and
// that ends them all when this one has gone.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_LOCAL_CLUSTER_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_LOCAL_CLUSTER_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/cli/cluster/line_pipe.h"
#include "client/cli/cluster/supervisor_event.h"
#include "client/cli/cluster/supervisor_options.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Not thread-safe. The destructor stops the cluster.
class LocalCluster {
 public:
  struct Process {
    std::string address;
    pid_t pid = 0;
    FileDescriptor handle;  // a pidfd: tells the end of this process from that of a namesake
  };

  // Starts the supervisor; options.sms is chosen here. To be called before this process has a
  // second thread or uses gRPC. INVALID_ARGUMENT, before anything is started: the backend has no
  // device on this machine, or too few for so many ranks. An error of any other kind: a program is
  // missing or does not run.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(SupervisorOptions options);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Blocks until every worker is registered. CANCELLED: interrupt_fd has become readable (nothing
  // is read from it). INVALID_ARGUMENT: a program refused its arguments, such as a backend that
  // this machine has no device for. Else FAILED_PRECONDITION: the cluster has failed.
  absl::Status WaitUntilReady(int interrupt_fd);

  // What has happened since the last call; never blocks. The loss of the supervisor itself comes as
  // kFailed.
  std::vector<SupervisorEvent> TakeEvents();
  // For poll(): readable when there may be events; -1 after the last one.
  int event_fd() const { return events_.fd(); }

  // HOST:PORT.
  const std::string& coordinator() const { return coordinator_.address; }
  // By name; of a worker that was lost, its last process.
  const std::map<std::string, Process>& workers() const { return workers_; }
  const std::string& directory() const { return directory_; }
  // The last kFailed.
  const absl::optional<SupervisorEvent>& failure() const { return failure_; }

  // Ends all processes and removes the directory; about 4 s at most, 10 s if the supervisor does
  // not answer. Idempotent.
  void Stop();

 private:
  LocalCluster(pid_t supervisor, FileDescriptor events, FileDescriptor life);
  void Apply(const SupervisorEvent& event);
  // After the supervisor's death: its children see that by themselves; waits for them, bounded.
  void WaitForOrphans();

  pid_t supervisor_;  // -1 once reaped
  LineReader events_;
  FileDescriptor life_;  // the supervisor stops when this closes
  std::string directory_;
  Process coordinator_;
  std::map<std::string, Process> workers_;
  bool ready_ = false;
  absl::optional<SupervisorEvent> failure_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_LOCAL_CLUSTER_H_
