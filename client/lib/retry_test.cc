#include "client/lib/retry.h"

#include "client/lib/group_error.h"
#include "gtest/gtest.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

const absl::Status kGone = absl::UnavailableError("not reached");

TEST(RetryDelayTest, OnlyAnUnreachedServerIsTriedAgain) {
  EXPECT_TRUE(RetryDelay(kGone, Repeat::kSafe, 1, 0.5).has_value());
  EXPECT_FALSE(RetryDelay(absl::OkStatus(), Repeat::kSafe, 1, 0.5).has_value());
  EXPECT_FALSE(RetryDelay(absl::InternalError("x"), Repeat::kSafe, 1, 0.5).has_value());
  EXPECT_FALSE(RetryDelay(absl::DeadlineExceededError("x"), Repeat::kSafe, 1, 0.5).has_value());
}

TEST(RetryDelayTest, NeverWhereASecondCallWouldCountTwice) {
  EXPECT_FALSE(RetryDelay(kGone, Repeat::kNever, 1, 0.5).has_value());
}

TEST(RetryDelayTest, NotWhereTheServerReportsALostRank) {
  const absl::Status lost = WithGroupError(kGone, v1::GroupError());
  EXPECT_FALSE(RetryDelay(lost, Repeat::kSafe, 1, 0.5).has_value());
}

TEST(RetryDelayTest, DoublesAndEnds) {
  EXPECT_EQ(*RetryDelay(kGone, Repeat::kSafe, 1, 0.5), kReconnectBackoffMin);
  EXPECT_EQ(*RetryDelay(kGone, Repeat::kSafe, 2, 0.5), 2 * kReconnectBackoffMin);
  EXPECT_EQ(*RetryDelay(kGone, Repeat::kSafe, 3, 0.5), 4 * kReconnectBackoffMin);
  EXPECT_FALSE(RetryDelay(kGone, Repeat::kSafe, 4, 0.5).has_value());
}

TEST(RetryDelayTest, JitterSpreadsBothWays) {
  EXPECT_LT(*RetryDelay(kGone, Repeat::kSafe, 1, 0.0), kReconnectBackoffMin);
  EXPECT_GT(*RetryDelay(kGone, Repeat::kSafe, 1, 0.999), kReconnectBackoffMin);
}

TEST(CallWithRetryTest, SendsUntilItSucceeds) {
  int sent = 0;
  EXPECT_TRUE(CallWithRetry(Repeat::kSafe, std::stop_token(), [&]() -> absl::Status {
                return ++sent < 3 ? kGone : absl::OkStatus();
              }).ok());
  EXPECT_EQ(sent, 3);
}

TEST(CallWithRetryTest, SendsOnceWhatMustNotBeRepeated) {
  int sent = 0;
  const absl::Status status = CallWithRetry(Repeat::kNever, std::stop_token(), [&] {
    ++sent;
    return kGone;
  });
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(sent, 1);
}

TEST(CallWithRetryTest, AStopRequestEndsIt) {
  std::stop_source stop;
  int sent = 0;
  const absl::Status status = CallWithRetry(Repeat::kSafe, stop.get_token(), [&] {
    ++sent;
    stop.request_stop();
    return kGone;
  });
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(sent, 1);
}

}  // namespace
}  // namespace perigee
