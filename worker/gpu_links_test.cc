#include "worker/gpu_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CudaDevice Device(const std::string& uuid) {
  CudaDevice device;
  device.name = "GPU of a test";
  device.pci_bus_id = "0000:19:00.0";
  device.uuid = uuid;
  return device;
}

TEST(GpuLinksTest, SaysWhichGpusAreReached) {
  CudaDevices devices;
  devices.devices = {Device("GPU-a"), Device("GPU-b"), Device("GPU-c")};
  devices.devices[1].mps = true;
  NvmlDevice other;
  other.uuid = "GPU-c";
  other.nvlinks = 4;
  NvmlDevice own;
  own.uuid = "GPU-b";
  own.nvlinks = 18;
  own.nvlink_megabytes_per_second = 26562;
  const v1::Gpu gpu =
      MakeGpu(devices, 1, "580.1", {other, own}, [](int peer) { return peer == 2; });
  EXPECT_EQ(gpu.uuid(), "GPU-b");
  EXPECT_EQ(gpu.name(), "GPU of a test");
  EXPECT_EQ(gpu.pci(), "0000:19:00.0");
  EXPECT_EQ(gpu.driver(), "580.1");
  EXPECT_TRUE(gpu.mps());
  EXPECT_EQ(gpu.nvlinks(), 18);
  EXPECT_EQ(gpu.nvlink_megabytes_per_second(), 26562);
  EXPECT_THAT(gpu.peers(), ElementsAre("GPU-c"));
  EXPECT_THAT(gpu.unreachable(), ElementsAre("GPU-a"));
}

TEST(GpuLinksTest, AnAbsentDeviceHasNothing) {
  const v1::Gpu gpu = MakeGpu(CudaDevices(), 0, "580.1", {}, [](int) { return true; });
  EXPECT_THAT(gpu.SerializeAsString(), IsEmpty());
}

}  // namespace
}  // namespace perigee
