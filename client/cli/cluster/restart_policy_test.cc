#include "client/cli/cluster/restart_policy.h"

#include "gtest/gtest.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

TEST(RestartPolicyTest, AWorkerThatServedComesBackSoonEveryTime) {
  RestartPolicy policy;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(policy.OnLoss(absl::Minutes(1)), kReconnectBackoffMin);
}

TEST(RestartPolicyTest, FastFailuresWaitLongerAndEnd) {
  RestartPolicy policy;
  absl::Duration last;
  for (int i = 1; i < RestartPolicy::kMaxFastFailures; ++i) {
    const auto delay = policy.OnLoss(absl::ZeroDuration());
    ASSERT_TRUE(delay.has_value());
    EXPECT_GT(*delay, last);
    last = *delay;
  }
  EXPECT_FALSE(policy.OnLoss(absl::ZeroDuration()).has_value());
}

TEST(RestartPolicyTest, ServingForAWhileForgivesThem) {
  RestartPolicy policy;
  for (int i = 1; i < RestartPolicy::kMaxFastFailures; ++i) policy.OnLoss(absl::ZeroDuration());
  EXPECT_EQ(policy.OnLoss(absl::Seconds(2)), kReconnectBackoffMin);
  EXPECT_TRUE(policy.OnLoss(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace perigee
