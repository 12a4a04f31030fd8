#include "worker/device_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/device/handle_kinds.h"

namespace perigee {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

CudaDevices TwoDevices() {
  CudaDevices devices;
  devices.built_with_cuda = true;
  devices.driver_version = 13020;
  devices.runtime_version = 13000;
  devices.devices = {{"NVIDIA H200", 9, 0, 132, 1000, "0000:19:00.0", "GPU-1"},
                     {"NVIDIA B200", 10, 0, 148, 2000, "0000:1a:00.0", "GPU-2"}};
  return devices;
}

TEST(DeviceDescriptionTest, ALineForEachFact) {
  EXPECT_THAT(
      DeviceLines(TwoDevices()),
      ElementsAre("built_with_cuda yes", "driver_cuda 13020", "runtime_cuda 13000", "devices 2",
                  "device.0.name NVIDIA H200", "device.0.compute 9.0", "device.0.sms 132",
                  "device.0.memory_bytes 1000", "device.0.pci 0000:19:00.0", "device.0.uuid GPU-1",
                  "device.1.name NVIDIA B200", "device.1.compute 10.0", "device.1.sms 148",
                  "device.1.memory_bytes 2000", "device.1.pci 0000:1a:00.0",
                  "device.1.uuid GPU-2"));
}

TEST(DeviceDescriptionTest, WithoutADeviceItSaysWhy) {
  CudaDevices devices;
  devices.problem = "the driver\nis too old";
  EXPECT_THAT(DeviceLines(devices),
              ElementsAre("built_with_cuda no", "driver_cuda 0", "runtime_cuda 0",
                          "problem the driver is too old", "devices 0"));
}

TEST(DeviceDescriptionTest, NvmlIsMatchedByUuid) {
  NvmlDevice other;
  other.uuid = "GPU-3";
  NvmlDevice second;
  second.uuid = "GPU-2";
  second.nvlinks = 18;
  second.persistence = false;
  NvmlDevice first;
  first.uuid = "GPU-1";
  EXPECT_THAT(NvmlLines(TwoDevices(), {other, second, first}),
              ElementsAre("device.0.nvlinks 0", "device.1.nvlinks 18", "device.1.persistence off"));
}

TEST(DeviceDescriptionTest, HandleKindsWorkOrSayWhyNot) {
  EXPECT_THAT(HandleLines(3, {absl::OkStatus(), absl::UnimplementedError("not\npermitted")}),
              ElementsAre("device.3.handle.fd ok", "device.3.handle.fabric not permitted"));
}

TEST(DeviceDescriptionTest, NoFactIsMissingForWantOfAnother) {
  std::vector<std::string> lines;
  DescribeDevices([&](const std::string& line) { lines.push_back(line); });
  EXPECT_THAT(lines, Contains(StartsWith("devices ")));
  EXPECT_THAT(lines, Contains(AnyOf(StartsWith("driver "), StartsWith("nvml_problem "))));
  EXPECT_THAT(lines, Contains(AnyOf(StartsWith("nccl "), StartsWith("nccl_problem "))));
  for (const std::string& line : lines) EXPECT_THAT(line, Not(HasSubstr("\n")));
  for (const CudaDevice& device : QueryCudaDevices().devices) {
    EXPECT_THAT(lines, Contains(HasSubstr(device.uuid)));
    EXPECT_THAT(lines, Contains(StartsWith("device.0.handle.fd ")));
  }
}

}  // namespace
}  // namespace perigee
