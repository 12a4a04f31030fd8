// Streams that are made once and used again for the life of the process.
//
// A stream keeps the hardware queue that it got when it was made, and the device has few of them
// (CUDA_DEVICE_MAX_CONNECTIONS, 8 unless set, 32 at most). Two streams in one queue wait for each
// other: where one's kernel waits for a peer whose own work is queued behind it, both wait until
// the deadline. Streams that come and go would sooner or later meet in one queue; these do not, as
// long as no more are in use at a time than there are queues.
#ifndef PERIGEE_KERNELS_DEVICE_STREAM_POOL_H_
#define PERIGEE_KERNELS_DEVICE_STREAM_POOL_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device/stream.h"

namespace perigee {

// A stream in use; its destructor makes it free for others. Work that was submitted to it goes on,
// and comes before that of its next user.
class PooledStream {
 public:
  // Errors as Stream::Create. Thread-safe.
  static absl::StatusOr<std::unique_ptr<PooledStream>> Take(int device, StreamPriority priority);
  PooledStream(std::unique_ptr<Stream> stream, StreamPriority priority)
      : stream_(std::move(stream)), priority_(priority) {}
  ~PooledStream();
  PooledStream(const PooledStream&) = delete;
  PooledStream& operator=(const PooledStream&) = delete;

  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return stream_.get(); }

 private:
  std::unique_ptr<Stream> stream_;
  const StreamPriority priority_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_STREAM_POOL_H_
