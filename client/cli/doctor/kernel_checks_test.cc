#include "client/cli/doctor/kernel_checks.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::IsEmpty;

TEST(KernelChecksTest, EveryFeatureWorksHere) {
  const KernelFacts facts = GatherKernelFacts();
  EXPECT_TRUE(absl::StartsWith(facts.release, "Linux "));
  for (const Finding& finding : CheckKernel(facts)) {
    EXPECT_EQ(finding.state, FindingState::kOk) << finding.name << ": " << finding.found;
    EXPECT_THAT(finding.remedy, IsEmpty());
  }
}

TEST(KernelChecksTest, AFeatureThatIsRefusedFails) {
  const struct {
    const char* name;
    absl::Status KernelFacts::*feature;
    FindingState state;
  } cases[] = {
      {"memfd", &KernelFacts::memfd, FindingState::kFail},
      {"futex", &KernelFacts::futex, FindingState::kFail},
      {"pidfd", &KernelFacts::pidfd, FindingState::kWarn},
      {"descriptor_passing", &KernelFacts::descriptor_passing, FindingState::kFail},
      {"proc", &KernelFacts::proc, FindingState::kFail},
  };
  for (const auto& c : cases) {
    KernelFacts facts;
    facts.*c.feature = absl::FailedPreconditionError("it: Operation not permitted");
    for (const Finding& finding : CheckKernel(facts)) {
      if (finding.name != c.name) {
        EXPECT_EQ(finding.state, FindingState::kOk) << finding.name;
        continue;
      }
      EXPECT_EQ(finding.state, c.state) << c.name;
      EXPECT_EQ(finding.found, "it: Operation not permitted");
      EXPECT_FALSE(finding.remedy.empty()) << c.name;
    }
  }
}

}  // namespace
}  // namespace perigee
