// Wakes a thread that polls.
#ifndef PERIGEE_WORKER_ATTACH_WAKE_EVENT_H_
#define PERIGEE_WORKER_ATTACH_WAKE_EVENT_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "kernels/common/check.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Thread-safe.
class WakeEvent {
 public:
  WakeEvent() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { PERIGEE_CHECK(event_.valid()); }

  // Never blocks: a full counter is set as well.
  void Set() {
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
  }
  void Clear() {
    uint64_t count;
    (void)!read(event_.get(), &count, sizeof(count));
  }
  // Readable while it is set.
  int fd() const { return event_.get(); }

 private:
  FileDescriptor event_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_WAKE_EVENT_H_
