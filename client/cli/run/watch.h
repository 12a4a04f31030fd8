// What goes on beside a run: Ctrl-C, and what happens to its own cluster.
#ifndef PERIGEE_CLIENT_CLI_RUN_WATCH_H_
#define PERIGEE_CLIENT_CLI_RUN_WATCH_H_

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "client/cli/cluster/line_pipe.h"
#include "client/cli/cluster/local_cluster.h"

namespace perigee {

// A thread that turns the first interrupt into a stop request and the second into the end of the
// process, and tells the cluster's events. Stopped by its destructor.
class RunWatch {
 public:
  // interrupt_fd: from TakeInterrupts, borrowed. cluster: borrowed and used by this thread only
  // while it lives; null: none. message: called from this thread.
  RunWatch(int interrupt_fd, LocalCluster* cluster, std::stop_source stop,
           std::function<void(const std::string&)> message);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

 private:
  void Loop();
  void OnInterrupt();

  const int interrupt_fd_;
  LocalCluster* const cluster_;
  std::stop_source stop_;
  const std::function<void(const std::string&)> message_;
  Pipe end_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_WATCH_H_
