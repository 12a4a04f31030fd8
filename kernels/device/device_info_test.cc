#include "kernels/device/device_info.h"

#include <gtest/gtest.h>

#include <iostream>

namespace perigee {
namespace {

TEST(DeviceInfoTest, SaysWhatIsThereOrWhyNothingIs) {
  const CudaDevices devices = QueryCudaDevices();
  std::cout << DescribeCudaDevices(devices) << std::endl;
  EXPECT_EQ(devices.devices.empty(), !devices.problem.empty());
  EXPECT_EQ(devices.runtime_version > 0, devices.built_with_cuda);
}

TEST(DeviceInfoTest, EveryDeviceIsDescribed) {
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  for (const CudaDevice& device : devices.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, 0u);
    EXPECT_GT(device.compute_major, 0);
    EXPECT_EQ(device.pci_bus_id.size(), 12u) << device.pci_bus_id;
    EXPECT_EQ(device.uuid.size(), 40u) << device.uuid;
  }
}

TEST(DeviceInfoTest, TheLineNamesDevicesOrTheProblem) {
  CudaDevices devices;
  devices.problem = "the driver is too old";
  EXPECT_EQ(DescribeCudaDevices(devices), "no CUDA device: the driver is too old");
  devices.problem.clear();
  devices.driver_version = 13020;
  devices.devices = {{"H200", 9, 0, 132, uint64_t{140} << 30}, {"H100", 9, 0, 132, 80 << 20}};
  EXPECT_EQ(DescribeCudaDevices(devices), "H200 (143360 MiB), H100 (80 MiB); driver for CUDA 13.2");
}

}  // namespace
}  // namespace perigee
