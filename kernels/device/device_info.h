// Which CUDA devices this process can see. A query for people and for choosing a backend: it never
// fails and needs neither a GPU, a driver nor the CUDA toolkit; where something is missing, it says
// what.
#ifndef PERIGEE_KERNELS_DEVICE_DEVICE_INFO_H_
#define PERIGEE_KERNELS_DEVICE_DEVICE_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

namespace perigee {

struct CudaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  std::string pci_bus_id = "";  // "0000:19:00.0"
  std::string uuid = "";        // "GPU-...", as NVML writes it
  bool mps = false;             // contexts on it are shared by CUDA's MPS
};

struct CudaDevices {
  bool built_with_cuda = false;
  int driver_version = 0;   // newest CUDA version that the driver runs, 1000 * major + 10 * minor
  int runtime_version = 0;  // CUDA version that this binary was built with, likewise
  std::vector<CudaDevice> devices;
  std::string problem;  // why there is no device, or why one could not be described; else empty
};

// Thread-safe.
CudaDevices QueryCudaDevices();

// One line: the devices, or why there are none.
std::string DescribeCudaDevices(const CudaDevices& devices);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DEVICE_INFO_H_
