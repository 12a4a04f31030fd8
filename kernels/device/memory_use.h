// How much memory a device has, and has left.
#ifndef PERIGEE_KERNELS_DEVICE_MEMORY_USE_H_
#define PERIGEE_KERNELS_DEVICE_MEMORY_USE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace perigee {

struct DeviceMemoryUse {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// All processes considered, and this one's context, which the first call makes. Thread-safe. Errors
// as kernels/device/cuda_status.h says.
absl::StatusOr<DeviceMemoryUse> ReadDeviceMemoryUse(int device);

// Adds to a RESOURCE_EXHAUSTED how many bytes were needed and how many are free; any other status
// comes back as it is.
absl::Status NameFreeMemory(int device, size_t needed_bytes, const absl::Status& status);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_MEMORY_USE_H_
