// The fixture of tests that need a CUDA device: skipped, saying why, where there is none.
#ifndef PERIGEE_KERNELS_DEVICE_DEVICE_TEST_H_
#define PERIGEE_KERNELS_DEVICE_DEVICE_TEST_H_

#include <gtest/gtest.h>

#include "kernels/device/device_info.h"

namespace perigee {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices devices = QueryCudaDevices();
    if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  }
};

// The reverse, for what must fail in a readable way.
class NoDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices devices = QueryCudaDevices();
    if (!devices.devices.empty()) GTEST_SKIP() << "there is a device";
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DEVICE_TEST_H_
