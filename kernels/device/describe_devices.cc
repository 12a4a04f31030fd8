#include "kernels/device/device_info.h"

namespace perigee {
namespace {

std::string DescribeVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string DescribeCudaDevices(const CudaDevices& devices) {
  std::string text;
  for (const CudaDevice& device : devices.devices) {
    if (!text.empty()) text += ", ";
    text += device.name + " (" + std::to_string(device.memory_bytes >> 20) + " MiB)";
  }
  if (text.empty()) text = "no CUDA device";
  if (!devices.problem.empty()) text += ": " + devices.problem;
  if (devices.driver_version > 0) {
    text += "; driver for CUDA " + DescribeVersion(devices.driver_version);
  }
  return text;
}

}  // namespace perigee
