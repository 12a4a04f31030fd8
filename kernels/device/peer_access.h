// Whether a device can use another device's memory.
#ifndef PERIGEE_KERNELS_DEVICE_PEER_ACCESS_H_
#define PERIGEE_KERNELS_DEVICE_PEER_ACCESS_H_

#include "absl/status/statusor.h"

namespace perigee {

// Asks the driver; creates no context. Errors as kernels/device/cuda_status.h says. Thread-safe.
absl::StatusOr<bool> CanAccessPeer(int device, int peer);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_PEER_ACCESS_H_
