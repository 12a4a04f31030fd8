#include "worker/device_list.h"

#include <gtest/gtest.h>

namespace perigee {
namespace {

TEST(DeviceListTest, ALineForEachDevice) {
  CudaDevices devices;
  devices.devices = {{"NVIDIA H200", 9, 0, 132, 1}, {"NVIDIA H100", 9, 0, 114, 1}};
  const absl::StatusOr<std::string> text = DeviceListText(devices);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "device 0 sms 132 name NVIDIA H200\ndevice 1 sms 114 name NVIDIA H100\n");
}

TEST(DeviceListTest, WithoutOneItSaysWhy) {
  CudaDevices devices;
  devices.problem = "the driver is too old";
  const absl::StatusOr<std::string> text = DeviceListText(devices);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(text.status().message()),
            "backend cuda: no CUDA device: the driver is too old");
}

}  // namespace
}  // namespace perigee
