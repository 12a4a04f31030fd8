#include "worker/device_list.h"

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<std::string> DeviceListText(const CudaDevices& devices) {
  if (devices.devices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend cuda: ", DescribeCudaDevices(devices)));
  }
  std::string text;
  for (size_t index = 0; index < devices.devices.size(); ++index) {
    const CudaDevice& device = devices.devices[index];
    absl::StrAppend(&text, "device ", index, " sms ", device.multiprocessors, " name ", device.name,
                    "\n");
  }
  return text;
}

}  // namespace perigee
