// An owned CUDA event: a mark in a stream that the host can ask for and other streams can wait for.
#ifndef PERIGEE_KERNELS_DEVICE_EVENT_H_
#define PERIGEE_KERNELS_DEVICE_EVENT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct CUevent_st;   // what cudaEvent_t points to
struct CUstream_st;  // what cudaStream_t points to

namespace perigee {

// kOff is cheaper to record, and what ordering needs.
enum class EventTiming { kOff, kOn };

// Thread-safe, except that Record replaces the mark that other threads may be asking for.
class Event {
 public:
  // FAILED_PRECONDITION without a device; INVALID_ARGUMENT for one that is not there.
  static absl::StatusOr<std::unique_ptr<Event>> Create(int device,
                                                       EventTiming timing = EventTiming::kOff);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  CUevent_st* get() const { return event_; }
  int device() const { return device_; }

  // Marks the end of what has been submitted to `stream`, of this device, so far.
  absl::Status Record(CUstream_st* stream);
  // Work submitted to `stream` (of any device) from here on waits for the last mark. The host does
  // not wait.
  absl::Status MakeWait(CUstream_st* stream) const;
  // True when the device has passed the last mark, and when there is none yet.
  absl::StatusOr<bool> Query() const;
  // Waits for the last mark, sleeping, without a bound.
  absl::Status Synchronize() const;

 private:
  Event(int device, CUevent_st* event) : device_(device), event_(event) {}

  const int device_;
  CUevent_st* const event_;
};

// Time on the device from one mark to the other, both with timing, recorded and passed.
// INVALID_ARGUMENT or FAILED_PRECONDITION otherwise. Resolution about half a microsecond.
absl::StatusOr<absl::Duration> Elapsed(const Event& from, const Event& to);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_EVENT_H_
