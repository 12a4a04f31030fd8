#include "worker/gpu_links.h"

#include "kernels/device/peer_access.h"

namespace perigee {

v1::Gpu MakeGpu(const CudaDevices& devices, int device, const std::string& driver,
                const std::vector<NvmlDevice>& nvml_devices,
                const std::function<bool(int peer)>& reaches) {
  v1::Gpu gpu;
  const int count = static_cast<int>(devices.devices.size());
  if (device < 0 || device >= count) return gpu;
  const CudaDevice& own = devices.devices[device];
  gpu.set_uuid(own.uuid);
  gpu.set_name(own.name);
  gpu.set_pci(own.pci_bus_id);
  gpu.set_driver(driver);
  gpu.set_mps(own.mps);
  for (const NvmlDevice& found : nvml_devices) {
    if (found.uuid != own.uuid) continue;
    gpu.set_nvlinks(found.nvlinks);
    gpu.set_nvlink_megabytes_per_second(found.nvlink_megabytes_per_second);
  }
  for (int peer = 0; peer < count; ++peer) {
    if (peer == device) continue;
    (reaches(peer) ? gpu.add_peers() : gpu.add_unreachable())->assign(devices.devices[peer].uuid);
  }
  return gpu;
}

v1::Gpu DescribeGpu(int device) {
  std::string driver;
  std::vector<NvmlDevice> nvml_devices;
  if (const auto nvml = NvmlLibrary::Open(); nvml.ok()) {
    driver = (*nvml)->DriverVersion().value_or("");
    nvml_devices = (*nvml)->Devices().value_or(std::vector<NvmlDevice>());
  }
  return MakeGpu(QueryCudaDevices(), device, driver, nvml_devices,
                 [device](int peer) { return CanAccessPeer(device, peer).value_or(false); });
}

}  // namespace perigee
