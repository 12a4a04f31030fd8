#include "client/lib/shared_region.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device_info.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

TEST(FindSharedDeviceTest, AnotherGpuIsRefusedByName) {
  const std::string another = "GPU-00000000-0000-0000-0000-000000000000";
  const absl::Status status = FindSharedDevice(another).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(another));
  const CudaDevices here = QueryCudaDevices();
  for (const auto& device : here.devices) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(device.uuid));
  }
  if (here.devices.empty()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("it sees no GPU"));
  }
}

TEST(FindSharedDeviceTest, EachOfThisMachineIsFoundByItsName) {
  const CudaDevices here = QueryCudaDevices();
  if (here.devices.empty()) GTEST_SKIP() << here.problem;
  for (size_t i = 0; i < here.devices.size(); ++i) {
    const absl::StatusOr<SharedDevice> found = FindSharedDevice(here.devices[i].uuid);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->index, static_cast<int>(i));
    EXPECT_EQ(found->uuid, here.devices[i].uuid);
  }
}

}  // namespace
}  // namespace perigee
