// The process that owns a local cluster: starts a coordinator and its workers, starts lost workers
// again, and ends them all when its own parent has gone, however that ended. It is a process of its
// own so that a killed `perigee up` leaves nothing behind, and single-threaded so that its children
// can be tied to its life.
//
// Life: directory, coordinator, workers (all at once), ready; then until the parent closes its
// pipe, SIGTERM comes, the coordinator is lost or a worker cannot be kept alive; then workers,
// coordinator and directory go, within 4 s.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/cli/cluster/managed_child.h"
#include "client/cli/cluster/program_paths.h"
#include "client/cli/cluster/restart_policy.h"
#include "client/cli/cluster/run_directory.h"
#include "client/cli/cluster/supervisor_event.h"
#include "client/cli/cluster/supervisor_options.h"
#include "proto/local/file_descriptor.h"
#include "proto/support/clock.h"

namespace perigee {

// Not thread-safe; the only user of signals and children in its process.
class Supervisor {
 public:
  // events: where supervisor events are written, a pipe. parent: the read end of a pipe that ends
  // with the parent.
  Supervisor(SupervisorOptions options, ProgramPaths programs, FileDescriptor events,
             FileDescriptor parent, const Clock& clock);

  // Blocks for the whole life. Returns the exit status: 0, or that of a kFailed event.
  int Run();

 private:
  struct Worker {
    ManagedChild child;
    RestartPolicy policy;
    absl::optional<absl::Duration> restart_at;
  };

  absl::Status Prepare();
  absl::Status StartCoordinator();
  void StartWorkers(const std::string& coordinator_address);
  void StartWorker(Worker& worker);
  // Waits for something to happen, not past `until`, and does what follows from it.
  void Step(absl::Duration until);
  absl::Duration NextTimer() const;
  void RunTimers();
  void TakeSignals();
  void TakeAddresses();
  void Reap();
  void OnCoordinatorExit(int wait_status);
  void OnWorkerExit(Worker& worker, int wait_status);
  void StopAll();
  // Whether none of them runs any more, at the latest at `until`.
  bool WaitForExits(bool coordinator_too, absl::Duration until);
  bool AnyRuns(bool coordinator_too) const;
  void Emit(const SupervisorEvent& event);
  void Fail(int exit_status, const std::string& text);

  const SupervisorOptions options_;
  const ProgramPaths programs_;
  const FileDescriptor events_;
  const FileDescriptor parent_;
  const Clock& clock_;
  absl::optional<RunDirectory> directory_;
  FileDescriptor signals_;
  FileDescriptor death_read_;   // what children watch
  FileDescriptor death_write_;  // closed by our end, whatever it is
  std::unique_ptr<ManagedChild> coordinator_;
  std::vector<Worker> workers_;
  absl::Duration start_deadline_;
  bool all_served_ = false;
  bool stopping_ = false;
  int exit_status_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_H_
