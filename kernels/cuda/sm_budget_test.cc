#include "kernels/cuda/sm_budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace perigee {
namespace {

TEST(SmBudgetTest, SharesNeverExceedTheTotal) {
  const auto budget = std::make_shared<SmBudget>(132);
  auto first = SmBudget::Reserve(budget, 100);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->sms(), 100);
  const auto refused = SmBudget::Reserve(budget, 33);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(),
            "a buffer needs 33 SMs, but of 132 other buffers have reserved 100");
  EXPECT_TRUE(SmBudget::Reserve(budget, 32).ok());
}

TEST(SmBudgetTest, AShareIsGivenBack) {
  const auto budget = std::make_shared<SmBudget>(16);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(SmBudget::Reserve(budget, 16).ok());
  auto kept = SmBudget::Reserve(budget, 16);
  EXPECT_FALSE(SmBudget::Reserve(budget, 1).ok());
  kept = absl::CancelledError();
  EXPECT_TRUE(SmBudget::Reserve(budget, 1).ok());
}

TEST(SmBudgetTest, AShareHasAtLeastOne) {
  EXPECT_EQ(SmBudget::Reserve(std::make_shared<SmBudget>(4), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace perigee
