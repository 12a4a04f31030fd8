#include <cuda_runtime_api.h>

#include "kernels/device/device_info.h"

namespace perigee {
namespace {

std::string Describe(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error);
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
