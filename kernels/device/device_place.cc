#include "kernels/device/device_place.h"

#include "absl/strings/str_cat.h"
#include "kernels/device/nvml_library.h"

namespace perigee {
namespace {

absl::optional<int> NvlinksOf(const std::string& uuid) {
  const auto nvml = NvmlLibrary::Open();
  if (!nvml.ok()) return absl::nullopt;
  const auto devices = (*nvml)->Devices();
  if (!devices.ok()) return absl::nullopt;
  for (const NvmlDevice& device : *devices) {
    if (device.uuid == uuid) return device.nvlinks;
  }
  return absl::nullopt;
}

}  // namespace

std::string DevicePlaceText(const CudaDevice& device, absl::optional<int> nvlinks) {
  std::string text = absl::StrCat("PCI ", device.pci_bus_id, ", ", device.uuid);
  if (nvlinks) absl::StrAppend(&text, ", ", *nvlinks, *nvlinks == 1 ? " NVLink" : " NVLinks");
  return text;
}

std::string DescribeDevicePlace(int device) {
  const CudaDevices devices = QueryCudaDevices();
  if (device < 0 || static_cast<size_t>(device) >= devices.devices.size()) return "";
  const CudaDevice& found = devices.devices[device];
  return DevicePlaceText(found, NvlinksOf(found.uuid));
}

}  // namespace perigee
