#include <cuda_runtime_api.h>

#include <cstdio>

#include "kernels/device/device_info.h"

namespace perigee {
namespace {

std::string Describe(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error);
}

std::string PciBusId(const cudaDeviceProp& properties) {
  char text[32];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID,
                properties.pciDeviceID);
  return text;
}

std::string Uuid(const cudaDeviceProp& properties) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof(byte), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(properties.uuid.bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

bool ReadDevice(int index, CudaDevice& device, std::string& problem) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    problem = Describe("cudaGetDeviceProperties", error);
    return false;
  }
  device.name = properties.name;
  device.compute_major = properties.major;
  device.compute_minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.memory_bytes = properties.totalGlobalMem;
  device.pci_bus_id = PciBusId(properties);
  device.uuid = Uuid(properties);
  int mps = 0;
  device.mps =
      cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, index) == cudaSuccess && mps != 0;
  return true;
}

}  // namespace

CudaDevices QueryCudaDevices() {
  CudaDevices result;
  result.built_with_cuda = true;
  // Both answer 0 where there is no driver.
  cudaDriverGetVersion(&result.driver_version);
  cudaRuntimeGetVersion(&result.runtime_version);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    result.problem = Describe("cudaGetDeviceCount", error);
    return result;
  }
  for (int index = 0; index < count; ++index) {
    CudaDevice device;
    if (!ReadDevice(index, device, result.problem)) break;
    result.devices.push_back(device);
  }
  if (count == 0) result.problem = "the driver sees no device";
  return result;
}

}  // namespace perigee
