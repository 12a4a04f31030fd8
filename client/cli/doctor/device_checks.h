// Whether the cuda backend runs here.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_CHECKS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_CHECKS_H_

#include <cstdint>
#include <vector>

#include "client/cli/doctor/device_facts.h"
#include "client/cli/doctor/finding.h"

namespace perigee {

// device_description, cuda_driver and cuda_devices; for each device cuda_device_{i}; where there is
// one memory_handle_fd, memory_handle_fabric, persistence and mps, where there are several
// peer_access; nvml and nccl. ranks: workers that shall run here, a device each.
std::vector<Finding> CheckDevices(const DeviceFacts& facts, int32_t ranks);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_CHECKS_H_
