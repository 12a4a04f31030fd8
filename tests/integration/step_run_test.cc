// `perigee run moe-step` with a cluster of its own.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class StepRunTest : public ClusterTest {
 protected:
  Result RunStep(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"run", "moe-step", "--token-padding", "8"};
    args.insert(args.end(), more.begin(), more.end());
    return RunPerigee(args);
  }
};

MATCHER(Passes, "") {
  *result_listener << "status " << arg.status << "\n" << arg.out << arg.err;
  return arg.status == 0 && absl::EndsWith(arg.out, "\nPASS\n");
}

TEST_F(StepRunTest, AStepOfThreeLayersIsWhatDoublePrecisionSaysAndRepeatsItsBits) {
  const Result result = RunStep({"--iterations", "2", "--seed", "7", "--json"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_EQ(json.at("layers").number_value(), 3);
  EXPECT_GT(json.at("replicas").number_value(), 0) << "gradients of replicas come home";
  EXPECT_EQ(json.at("steps_that_differ").number_value(), 0);
  const auto& checks = json.at("checks").list_value();
  ASSERT_EQ(checks.values_size(), 2 + 3 * 4);
  for (const auto& check : checks.values()) {
    const auto fields = check.struct_value().fields();
    EXPECT_GT(fields.at("relative_error").number_value(), 0) << "bf16 is not double precision";
    EXPECT_LE(fields.at("relative_error").number_value(),
              fields.at("relative_error_limit").number_value())
        << fields.at("what").string_value();
  }
  EXPECT_EQ(json.at("phases").list_value().values_size(), 6);
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration())) << "when the command has ended";
}

TEST_F(StepRunTest, OtherShapesPass) {
  EXPECT_THAT(RunStep({"--ranks", "1", "--layers", "1", "--topk", "8"}), Passes());
  EXPECT_THAT(RunStep({"--ranks", "3", "--experts", "6", "--tokens", "5", "--hidden", "24",
                       "--intermediate", "40", "--slots", "3", "--layers", "2"}),
              Passes());
}

TEST_F(StepRunTest, WhatCannotBeIsRefused) {
  Result result = RunStep({"--ranks", "3"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--ranks 3 does not divide the 8 experts"));
  result = RunStep({"--hidden", "20"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("20 is not a multiple of 8"));
  result = RunStep({"--input", kLayerPath, "--experts", "4"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--experts is for random tokens"));
  result = RunStep({"--slots", "1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("slots is 1, expected at least experts / ranks = 2"));
}

}  // namespace
}  // namespace perigee
