// What users see when a worker, or the command itself, is lost in the middle of a run.
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loss_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

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
  const auto run = LongRun({"--on-loss", "wait", "--json"}, 600);
  const pid_t worker = AwaitWorker(2);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, 2);
  ExpectGoesOn(*run, 2);
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
