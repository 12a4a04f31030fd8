// Makes one device current for the calling thread while it lives, and puts back what was current
// before. Through the driver API: cudaSetDevice in its place would create a context on whatever
// device the thread had never used before.
#ifndef PERIGEE_KERNELS_DEVICE_DEVICE_SCOPE_H_
#define PERIGEE_KERNELS_DEVICE_DEVICE_SCOPE_H_

#include "absl/status/statusor.h"

namespace perigee {

struct DriverApi;

// Scopes nest and must end in reverse order, on the thread that entered them. The primary context
// of a device, the one that the runtime API uses, is retained at the first scope and kept for the
// life of the process. Different threads may enter scopes at the same time.
class DeviceScope {
 public:
  // FAILED_PRECONDITION without a driver or a device; INVALID_ARGUMENT for a device that is not
  // there; RESOURCE_EXHAUSTED when its memory does not suffice for a context.
  static absl::StatusOr<DeviceScope> Enter(int device);
  DeviceScope(DeviceScope&& other) noexcept;
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  DeviceScope& operator=(DeviceScope&&) = delete;
  ~DeviceScope();

  const DriverApi& driver() const { return *driver_; }

 private:
  explicit DeviceScope(const DriverApi* driver) : driver_(driver) {}

  const DriverApi* driver_;  // null after a move: nothing to leave
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DEVICE_SCOPE_H_
