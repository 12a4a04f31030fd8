// An owned CUDA stream. It does not synchronise with the default stream: a kernel there that waits
// for a peer must not hold up the others.
#ifndef PERIGEE_KERNELS_DEVICE_STREAM_H_
#define PERIGEE_KERNELS_DEVICE_STREAM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace perigee {

// kHigh: the device prefers blocks of its kernels over those of kNormal streams that have not
// started yet.
enum class StreamPriority { kNormal, kHigh };

// Thread-safe; work submitted by several threads runs in the order in which it was submitted.
class Stream {
 public:
  // FAILED_PRECONDITION without a device; INVALID_ARGUMENT for one that is not there.
  static absl::StatusOr<std::unique_ptr<Stream>> Create(
      int device, StreamPriority priority = StreamPriority::kNormal);
  // Does not wait: work that was submitted goes on to its end.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* get() const { return stream_; }
  int device() const { return device_; }

  // True when all submitted work has ended. An error of that work shows here, once or for good
  // (DATA_LOSS).
  absl::StatusOr<bool> Query() const;
  // Waits for all submitted work, without a bound: where a kernel may wait for a peer, poll Query
  // against a deadline instead.
  absl::Status Synchronize() const;

 private:
  Stream(int device, CUstream_st* stream) : device_(device), stream_(stream) {}

  const int device_;
  CUstream_st* const stream_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_STREAM_H_
