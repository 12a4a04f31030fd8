#include "client/cli/run/layer_report.h"

#include "absl/strings/match.h"
#include "client/cli/run/phase_times.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::OperationTiming Timing(int64_t count, int64_t total, int64_t low, int64_t high) {
  v1::OperationTiming timing;
  timing.set_operation("dispatch");
  timing.set_count(count);
  timing.set_total_ns(total);
  timing.set_min_ns(low);
  timing.set_max_ns(high);
  return timing;
}

RunLayerReport TwoRanks() {
  RunLayerReport report;
  report.input = "layer.safetensors";
  report.tokens = 64;
  report.iterations = 2;
  report.path = {DispatchPath::kDirect, "it was asked for"};
  report.group.set_backend("host");
  report.group.set_generation(3);
  for (int rank = 0; rank < 2; ++rank) {
    report.group.add_members()->set_worker(rank == 0 ? "workers/w0" : "workers/w1");
    v1::PlanSummary plan;
    plan.set_home_load(rank == 0 ? 300 : 100);
    plan.set_balanced_load(200);
    plan.set_replicas(rank);
    report.plans.push_back(plan);
  }
  report.timings = {{Timing(2, 30, 10, 20)}, {Timing(2, 50, 5, 45)}};
  report.generations = {3};
  return report;
}

TEST(RunLayerReportTest, PhasesNameTheSlowestRank) {
  const auto phases = SummarizePhases(TwoRanks().timings);
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].slowest_rank, 1);
  EXPECT_EQ(phases[0].slowest_mean_ns, 25);
  EXPECT_EQ(phases[0].mean_ns, 20);
  EXPECT_EQ(phases[0].min_ns, 5);
  EXPECT_EQ(phases[0].max_ns, 45);
  EXPECT_TRUE(SummarizePhases({}).empty());
}

TEST(RunLayerReportTest, ThePathIsNamedWithItsReason) {
  EXPECT_THAT(RunLayerText(TwoRanks()), HasSubstr("\nRows took path direct: it was asked for.\n"));
  EXPECT_THAT(RunLayerJson(TwoRanks()), HasSubstr("\"path\": \"direct\""));
  EXPECT_THAT(RunLayerJson(TwoRanks()), HasSubstr("\"path_reason\": \"it was asked for\""));
}

TEST(RunLayerReportTest, TheVerdictIsTheLastLine) {
  RunLayerReport report = TwoRanks();
  report.comparison = Comparison{0.5, 1e-3, 0};
  EXPECT_TRUE(absl::EndsWith(RunLayerText(report), "\nPASS\n"));
  report.comparison->relative_error = 6e-3;
  EXPECT_TRUE(absl::EndsWith(RunLayerText(report), "\nFAIL\n"));
  report.comparison = Comparison{0, 0, 1};
  EXPECT_TRUE(absl::EndsWith(RunLayerText(report), "\nFAIL\n"));
}

TEST(RunLayerReportTest, NothingIsClaimedWithoutAComparison) {
  const std::string text = RunLayerText(TwoRanks());
  EXPECT_THAT(text, HasSubstr("nothing was compared"));
  EXPECT_THAT(text, Not(HasSubstr("PASS")));
  EXPECT_THAT(RunLayerJson(TwoRanks()), HasSubstr("\"result\": \"NOT_COMPARED\""));
}

TEST(RunLayerReportTest, LoadsAreShownWithAndWithoutBalancing) {
  const std::string text = RunLayerText(TwoRanks());
  EXPECT_THAT(text, HasSubstr("equal on every rank, 200 rows"));
  EXPECT_THAT(text, HasSubstr("1.50 times the mean"));
  RunLayerReport uneven = TwoRanks();
  uneven.plans[0].set_balanced_load(201);
  EXPECT_THAT(RunLayerText(uneven), HasSubstr("from 200 to 201 rows"));
}

TEST(RunLayerReportTest, JsonHasTheSameFacts) {
  RunLayerReport report = TwoRanks();
  report.comparison = Comparison{0.5, 1e-3, 0};
  const std::string json = RunLayerJson(report);
  for (const char* part :
       {"\"home_load\": 300", "\"balanced_load\": 200", "\"replicas\": 1", "\"slowest_rank\": 1",
        "\"relative_error\": 0.001", "\"result\": \"PASS\""}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

}  // namespace
}  // namespace perigee
