// What ends a server process from outside: SIGTERM or SIGINT, the end of its supervisor, or the
// process's own wish to leave. Sees to it that the process is gone soon after, whatever hangs.
#ifndef PERIGEE_PROTO_LOCAL_STOP_WATCH_H_
#define PERIGEE_PROTO_LOCAL_STOP_WATCH_H_

#include <mutex>
#include <string>
#include <thread>

#include "proto/local/file_descriptor.h"
#include "proto/local/wait_limit.h"

namespace perigee {

class StopWatch {
 public:
  // Before any other thread starts: SIGTERM and SIGINT are blocked in all of them from here on.
  // death_fd: -1, or a descriptor that reaches its end when the supervisor has gone; the process
  // then also gets SIGTERM when its parent ends.
  explicit StopWatch(int death_fd);
  ~StopWatch();

  // Readable from the moment that the process should stop.
  const Interrupt& stop() const { return stop_; }
  // Blocks until then.
  void Await() const;
  // Stops by our own wish, with exit status 1.
  void Leave();
  // 0 after a signal, 1 else.
  int exit_status() const;
  // A file to remove when the process has to end without cleaning up.
  void set_leftover(const std::string& path);

 private:
  void Run();
  void Stop(int exit_status);
  void ForceExit();

  FileDescriptor signals_;
  FileDescriptor death_;
  Interrupt stop_;
  Interrupt finished_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  int exit_status_ = 0;
  std::string leftover_;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_STOP_WATCH_H_
