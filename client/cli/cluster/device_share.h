// How the workers of a local cluster divide the CUDA devices of this machine.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_SHARE_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_SHARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace perigee {

struct ListedDevice {
  int32_t sms = 0;
  std::string name;
};

// What `perigee-worker --list_devices` printed (worker/device_list.h), by index; at least one.
// FAILED_PRECONDITION, with the line, where it is no such list.
absl::StatusOr<std::vector<ListedDevice>> ParseDeviceList(const std::vector<std::string>& lines);

// The SMs of its device that each worker may take; 0: all. Without shared_gpu every worker has a
// device of its own, with it all have the first. INVALID_ARGUMENT, with the numbers: too few
// devices, or fewer SMs than workers. There is at least one device.
absl::StatusOr<int32_t> SmsOfWorker(const std::vector<ListedDevice>& devices, int32_t ranks,
                                    bool shared_gpu);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_SHARE_H_
