#include "client/cli/cluster/device_share.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

const std::vector<ListedDevice> kOne = {{132, "NVIDIA H200"}};
const std::vector<ListedDevice> kTwo = {{132, "NVIDIA H200"}, {114, "NVIDIA H100"}};

std::string Message(const absl::StatusOr<int32_t>& sms) {
  EXPECT_TRUE(absl::IsInvalidArgument(sms.status()));
  return std::string(sms.status().message());
}

TEST(DeviceShareTest, ListsAreRead) {
  const auto devices =
      ParseDeviceList({"device 0 sms 132 name NVIDIA H200", "device 1 sms 114 name NVIDIA H100"});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].sms, 132);
  EXPECT_EQ((*devices)[1].name, "NVIDIA H100");
}

TEST(DeviceShareTest, OtherTextIsNamed) {
  for (const char* line : {"", "device", "device 1 sms 132 name H200",
                           "device 0 sms many name H200", "device 0 sms 132 called H200"}) {
    const auto devices = ParseDeviceList({line});
    EXPECT_TRUE(absl::IsFailedPrecondition(devices.status()));
    EXPECT_THAT(std::string(devices.status().message()), HasSubstr(line));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(ParseDeviceList({}).status()));
}

TEST(DeviceShareTest, AWorkerHasAllOfItsOwnDevice) {
  EXPECT_EQ(SmsOfWorker(kOne, 1, false).value(), 0);
  EXPECT_EQ(SmsOfWorker(kTwo, 2, false).value(), 0);
}

TEST(DeviceShareTest, TooFewDevicesAreTold) {
  EXPECT_EQ(Message(SmsOfWorker(kTwo, 8, false)),
            "backend cuda: 8 workers need a device each, and this machine has 2 (NVIDIA H200, "
            "NVIDIA H100); --shared-gpu puts them all on the first, for tests");
}

TEST(DeviceShareTest, WorkersOfASharedGpuDivideItsSms) {
  EXPECT_EQ(SmsOfWorker(kOne, 1, true).value(), 132);
  EXPECT_EQ(SmsOfWorker(kTwo, 8, true).value(), 16);
  EXPECT_EQ(SmsOfWorker({{114, "H100"}}, 114, true).value(), 1);
  EXPECT_EQ(Message(SmsOfWorker({{114, "H100"}}, 115, true)),
            "backend cuda: 115 workers cannot share the 114 SMs of H100");
}

}  // namespace
}  // namespace perigee
