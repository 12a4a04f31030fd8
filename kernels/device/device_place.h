// Where a CUDA device is in its machine, in words for people.
#ifndef PERIGEE_KERNELS_DEVICE_DEVICE_PLACE_H_
#define PERIGEE_KERNELS_DEVICE_DEVICE_PLACE_H_

#include <string>

#include "absl/types/optional.h"
#include "kernels/device/device_info.h"

namespace perigee {

// "PCI 0000:19:00.0, GPU-..., 18 NVLinks". nvlinks: that are up; nullopt: not known, left out.
std::string DevicePlaceText(const CudaDevice& device, absl::optional<int> nvlinks);

// The same of a device by its index, asking NVML for the links; empty where there is no such
// device. Creates no CUDA context. Thread-safe.
std::string DescribeDevicePlace(int device);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DEVICE_PLACE_H_
