#include "worker/ops/failure_reason.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(FailureReasonTest, TravelsInsideAStatus) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), "INTERNAL");
  EXPECT_EQ(ReasonOf(InvalidProgram("x")), "INVALID_PROGRAM");
  EXPECT_EQ(ReasonOf(WithReason(StaleObject("x"), kReasonDeclined)), "DECLINED");
}

}  // namespace
}  // namespace perigee
