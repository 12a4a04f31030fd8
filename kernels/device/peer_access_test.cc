#include "kernels/device/peer_access.h"

#include "gtest/gtest.h"
#include "kernels/device/device_test.h"

namespace perigee {
namespace {

class PeerAccessTest : public DeviceTest {};

TEST_F(PeerAccessTest, ADeviceIsNoPeerOfItself) {
  const auto can = CanAccessPeer(0, 0);
  ASSERT_TRUE(can.ok()) << can.status();
  EXPECT_FALSE(*can);
}

TEST(PeerAccessErrorTest, ADeviceThatIsNotThereIsAnError) {
  EXPECT_FALSE(CanAccessPeer(0, 4096).ok());
}

}  // namespace
}  // namespace perigee
