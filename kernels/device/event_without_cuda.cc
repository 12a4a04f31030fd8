#include "kernels/device/cuda_status.h"
#include "kernels/device/event.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<Event>> Event::Create(int, EventTiming) {
  return BuiltWithoutCuda();
}

Event::~Event() = default;

absl::Status Event::Record(CUstream_st*) { return BuiltWithoutCuda(); }

absl::Status Event::MakeWait(CUstream_st*) const { return BuiltWithoutCuda(); }

absl::StatusOr<bool> Event::Query() const { return BuiltWithoutCuda(); }

absl::Status Event::Synchronize() const { return BuiltWithoutCuda(); }

absl::StatusOr<absl::Duration> Elapsed(const Event&, const Event&) { return BuiltWithoutCuda(); }

}  // namespace perigee
