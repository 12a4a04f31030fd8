#include "kernels/rank/weights_errors.h"

#include <gtest/gtest.h>

#include <string>

namespace perigee {
namespace {

TEST(WeightsErrorsTest, AStaleHomeIsNamedWithBothVersions) {
  const HomeHeader held = {.version = 7, .layer = 1};
  const WantedWeights wanted = {.layer = 2, .version = 8};
  EXPECT_EQ(DescribeStaleHome(3, held, wanted),
            "home rank 3 holds layer 1 version 7, expected layer 2 version 8");
  const ErrorRecord record = StaleHomeRecord(3, held, wanted);
  EXPECT_EQ(record.reason, static_cast<uint32_t>(AbortReason::kStaleWeights));
  EXPECT_EQ(record.awaited_rank, 3);
  EXPECT_EQ(record.expected, 8);
  EXPECT_EQ(record.seen, 7);
}

TEST(WeightsErrorsTest, AnEmptySlotHoldsNothing) {
  const SlotTag wanted = {.version = 8, .layer = 2, .expert = 5};
  const absl::Status empty = SlotRefused(1, SlotTag(), wanted);
  EXPECT_TRUE(absl::IsFailedPrecondition(empty));
  EXPECT_EQ(std::string(empty.message()),
            "slot 1 holds nothing, expected layer 2 expert 5 version 8");
  EXPECT_EQ(std::string(SlotRefused(0, {.version = 7, .layer = 2, .expert = 5}, wanted).message()),
            "slot 0 holds layer 2 expert 5 version 7, expected layer 2 expert 5 version 8");
}

}  // namespace
}  // namespace perigee
