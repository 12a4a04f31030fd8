#include "kernels/device/device_place.h"

#include <gtest/gtest.h>

#include <iostream>

namespace perigee {
namespace {

TEST(DevicePlaceTest, NamesBusDeviceAndLinks) {
  CudaDevice device;
  device.pci_bus_id = "0000:19:00.0";
  device.uuid = "GPU-1";
  EXPECT_EQ(DevicePlaceText(device, 18), "PCI 0000:19:00.0, GPU-1, 18 NVLinks");
  EXPECT_EQ(DevicePlaceText(device, 1), "PCI 0000:19:00.0, GPU-1, 1 NVLink");
  EXPECT_EQ(DevicePlaceText(device, 0), "PCI 0000:19:00.0, GPU-1, 0 NVLinks");
  EXPECT_EQ(DevicePlaceText(device, absl::nullopt), "PCI 0000:19:00.0, GPU-1");
}

TEST(DevicePlaceTest, ADeviceThatIsNotThereHasNone) {
  EXPECT_EQ(DescribeDevicePlace(-1), "");
  EXPECT_EQ(DescribeDevicePlace(4096), "");
}

TEST(DevicePlaceTest, EveryDeviceHasOne) {
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  for (size_t i = 0; i < devices.devices.size(); ++i) {
    const std::string place = DescribeDevicePlace(static_cast<int>(i));
    std::cout << "device " << i << ": " << place << std::endl;
    EXPECT_NE(place.find(devices.devices[i].uuid), std::string::npos) << place;
  }
}

}  // namespace
}  // namespace perigee
