// What users see when a worker, or the command itself, is lost in the middle of a run.
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// A second is what users are promised on an idle machine; this one runs other tests, too.
constexpr absl::Duration kTold = absl::Seconds(1);
constexpr absl::Duration kToldOnABusyMachine = absl::Seconds(5);

class LossTest : public ClusterTest {
 protected:
  // A run that goes on for long enough, and is in the middle of it.
  std::unique_ptr<Process> LongRun(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",          "moe-layer",       "--input",
                                     kLayerPath,     "--token-padding", "1",
                                     "--iterations", "100000"};
    args.insert(args.end(), more.begin(), more.end());
    auto run = Perigee(args);
    EXPECT_TRUE(run->AwaitErr("iteration ", kStepTimeout).has_value()) << run->err();
    return run;
  }

  // Kills a worker and waits until every other rank has said so.
  static void KillAndAwaitEveryRank(Process& run, pid_t worker, int lost_rank) {
    const absl::Time killed = absl::Now();
    ASSERT_EQ(kill(worker, SIGKILL), 0);
    for (int rank = 0; rank < 8; ++rank) {
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
};

TEST_F(LossTest, EveryRankNamesTheLostOneAndTheRunEnds) {
  const auto run = LongRun({});
  const pid_t worker = AwaitWorker(5);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, 5);
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1);
  EXPECT_EQ(run->out(), "");
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(LossTest, WaitingGoesOnInTheNextGeneration) {
  const auto run = Perigee({"run", "moe-layer", "--input", kLayerPath, "--token-padding", "1",
                            "--iterations", "600", "--on-loss", "wait", "--json"});
  ASSERT_TRUE(run->AwaitErr("iteration ", kStepTimeout).has_value()) << run->err();
  const pid_t worker = AwaitWorker(2);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, 2);
  const auto line = run->AwaitErr("continuing at iteration", kStepTimeout);
  ASSERT_TRUE(line.has_value()) << run->err();
  EXPECT_THAT(*line, HasSubstr("rank 2 now workers/w2"));
  ASSERT_EQ(run->AwaitExit(3 * kStepTimeout), 0) << run->err();
  const auto json = ParseJson(run->out()).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  const auto& generations = json.at("generations").list_value();
  ASSERT_EQ(generations.values_size(), 2);
  EXPECT_GT(generations.values(1).number_value(), generations.values(0).number_value());
}

TEST_F(LossTest, AStoppedWorkerIsLostWhenItsLeaseEnds) {
  const auto run = LongRun({});
  const pid_t worker = AwaitWorker(0);
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGSTOP), 0);
  const auto line = run->AwaitErr("rank 1: UNAVAILABLE", kStepTimeout);
  ASSERT_TRUE(line.has_value()) << run->err();
  EXPECT_THAT(*line, HasSubstr("workers/w0"));
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1);
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(LossTest, CtrlCCancelsARun) {
  const auto run = LongRun({});
  run->Signal(SIGINT);
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("cancelled"));
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(LossTest, AKilledRunLeavesNothing) {
  const auto run = LongRun({});
  run->Signal(SIGKILL);
  EXPECT_TRUE(run->AwaitExit(kStepTimeout).has_value());
  EXPECT_TRUE(NothingLeft(absl::Seconds(5)));
}

TEST_F(LossTest, ACancelledRunOnAClusterThatStaysRemovesItsGroup) {
  StartCluster(8);
  const auto run = LongRun({"--address", address_});
  run->Signal(SIGINT);
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1) << run->err();
  const Result groups = RunPerigee({"list", "groups", "--address", address_});
  EXPECT_EQ(groups.out, "no groups\n") << run->err();
  // And the workers are free for the next one.
  const Result next = RunPerigee(
      {"run", "moe-layer", "--input", kLayerPath, "--token-padding", "1", "--address", address_});
  EXPECT_EQ(next.status, 0) << next.err;
}

TEST_F(LossTest, ALossOnAClusterThatStaysLeavesItUsable) {
  StartCluster(8);
  const auto run = LongRun({"--address", address_});
  KillAndAwaitEveryRank(*run, worker_pids_[7], 7);
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1);
  ASSERT_TRUE(cluster_->AwaitErr("worker w7 serves at", kStepTimeout).has_value());
  const Result next = RunPerigee(
      {"run", "moe-layer", "--input", kLayerPath, "--token-padding", "1", "--address", address_});
  EXPECT_EQ(next.status, 0) << next.err;
}

TEST_F(LossTest, ALostCoordinatorEndsTheRun) {
  const auto run = LongRun({});
  for (const pid_t pid : Processes()) {
    std::string line;
    std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));
    std::getline(file, line, '\0');
    if (absl::StrContains(line, "coordinator")) kill(pid, SIGKILL);
  }
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("coordinator"));
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

}  // namespace
}  // namespace perigee
