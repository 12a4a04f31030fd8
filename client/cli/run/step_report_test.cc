#include "client/cli/run/step_report.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Two ranks with a token each and one layer, all of whose sizes are 1 but for the two experts.
const StepSizes kSizes = {2, 1, 1, 1, 2, 1};

std::vector<StepOutcome> Outcomes() {
  std::vector<StepOutcome> outcomes(2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto value = static_cast<float>(rank + 1);
    outcomes[rank].output = outcomes[rank].hidden_grad = {ToBFloat16(value)};
    outcomes[rank].layers = {{{value}, {value}, {value}, {value}}};
  }
  return outcomes;
}
StepExpected Expected() { return {{1, 2}, {1, 2}, {{{1, 2}, {1, 2}, {1, 2}, {1, 2}}}}; }

StepReport Report(std::vector<StepCheck> checks) {
  StepReport report;
  report.sizes = kSizes;
  report.iterations = 2;
  report.checks = std::move(checks);
  return report;
}

TEST(StepReportTest, RanksFollowEachOther) {
  const std::vector<StepCheck> checks = CheckStep(kSizes, Outcomes(), Expected());
  ASSERT_EQ(checks.size(), 6u);
  for (const StepCheck& check : checks) {
    EXPECT_EQ(check.relative_error, 0) << check.what;
    EXPECT_TRUE(check.passes());
  }
  EXPECT_EQ(checks[2].what, "layer 0 route_weight_grad");
  EXPECT_THAT(StepText(Report(checks)), EndsWith("Every step left the same bits.\nPASS\n"));
  EXPECT_THAT(StepJson(Report(checks)), HasSubstr(R"("result": "PASS")"));
}

TEST(StepReportTest, EveryTensorIsLookedAt) {
  for (int i = 0; i < 6; ++i) {
    StepExpected expected = Expected();
    StepExpected::Layer& layer = expected.layers[0];
    std::vector<double>* const tensors[] = {&expected.output,         &expected.hidden_grad,
                                            &layer.route_weight_grad, &layer.gate_grad,
                                            &layer.up_grad,           &layer.down_grad};
    (*tensors[i])[1] = 2.1;
    const std::vector<StepCheck> checks = CheckStep(kSizes, Outcomes(), expected);
    for (int check = 0; check < 6; ++check) EXPECT_EQ(checks[check].passes(), check != i);
    EXPECT_NEAR(checks[i].largest_absolute_error, 0.1, 1e-6);
    EXPECT_NEAR(checks[i].relative_error, 0.1 / std::sqrt(1 + 2.1 * 2.1), 1e-6);
    EXPECT_THAT(StepText(Report(checks)), EndsWith("FAIL\n"));
  }
}

TEST(StepReportTest, WhatIsNoNumberOrMissingFails) {
  std::vector<StepOutcome> outcomes = Outcomes();
  outcomes[1].layers[0].up_grad[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(CheckStep(kSizes, outcomes, Expected())[4].passes());
  outcomes = Outcomes();
  outcomes[1].output.clear();
  EXPECT_FALSE(CheckStep(kSizes, outcomes, Expected())[0].passes());
}

TEST(StepReportTest, StepsThatDifferFail) {
  StepReport report = Report(CheckStep(kSizes, Outcomes(), Expected()));
  report.steps_that_differ = 1;
  EXPECT_THAT(StepText(report), EndsWith("1 steps left other bits than the first.\nFAIL\n"));
}

}  // namespace
}  // namespace perigee
