// What `perigee-worker --list_devices` prints: the CUDA devices that workers of this machine would
// find, for whoever is about to start some and does not link CUDA itself.
#ifndef PERIGEE_WORKER_DEVICE_LIST_H_
#define PERIGEE_WORKER_DEVICE_LIST_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/device_info.h"

namespace perigee {

// A line for each device, in order of its index: "device INDEX sms SMS name NAME".
// FAILED_PRECONDITION, saying what is there instead, where there is none.
absl::StatusOr<std::string> DeviceListText(const CudaDevices& devices);

}  // namespace perigee

#endif  // PERIGEE_WORKER_DEVICE_LIST_H_
