#include "tests/integration/loss_fixture.h"

#include <csignal>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// A second is what users are promised on an idle machine; this one runs other tests, too.
constexpr absl::Duration kTold = absl::Seconds(1);
constexpr absl::Duration kToldOnABusyMachine = absl::Seconds(5);

}  // namespace

std::unique_ptr<Process> LossTest::LongRun(const std::vector<std::string>& more,
                                           int iterations) const {
  std::vector<std::string> args = {"run",
                                   "moe-layer",
                                   "--input",
                                   kLayerPath,
                                   "--token-padding",
                                   "1",
                                   "--iterations",
                                   absl::StrCat(iterations)};
  args.insert(args.end(), more.begin(), more.end());
  auto run = Perigee(args);
  EXPECT_TRUE(run->AwaitErr("iteration ", kStepTimeout).has_value()) << run->err();
  return run;
}

void LossTest::KillAndAwaitEveryRank(Process& run, pid_t worker, int lost_rank, int ranks) {
  const absl::Time killed = absl::Now();
  ASSERT_EQ(kill(worker, SIGKILL), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto line =
        run.AwaitErr(absl::StrCat("rank ", rank, ": UNAVAILABLE"), kToldOnABusyMachine);
    ASSERT_TRUE(line.has_value()) << "rank " << rank << "\n" << run.err();
    EXPECT_THAT(*line, HasSubstr(absl::StrCat("workers/w", lost_rank)));
  }
  const absl::Duration told = absl::Now() - killed;
  RecordProperty("told_ms", static_cast<int>(absl::ToInt64Milliseconds(told)));
  EXPECT_LT(told, kToldOnABusyMachine);
  if (told > kTold) std::cout << "every rank had spoken only after " << told << "\n";
}

void LossTest::ExpectGoesOn(Process& run, int lost_rank) {
  const auto line = run.AwaitErr("continuing at iteration", kStepTimeout);
  ASSERT_TRUE(line.has_value()) << run.err();
  EXPECT_THAT(*line, HasSubstr(absl::StrCat("rank ", lost_rank, " now workers/w", lost_rank)));
  ASSERT_EQ(run.AwaitExit(3 * kStepTimeout), 0) << run.err();
  const auto json = ParseJson(run.out()).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  const auto& generations = json.at("generations").list_value();
  ASSERT_EQ(generations.values_size(), 2);
  EXPECT_GT(generations.values(1).number_value(), generations.values(0).number_value());
}

}  // namespace perigee
