// `perigee up`: its life and its ends, and the commands that look at it.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "tests/integration/cluster_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class UpTest : public ClusterTest {
 protected:
  Result Ask(std::vector<std::string> args) const {
    return RunPerigee(args, {absl::StrCat("PERIGEE_ADDRESS=", address_)});
  }
};

TEST_F(UpTest, CtrlCEndsItAndLeavesNothing) {
  StartCluster(3);
  EXPECT_GE(Processes().size(), 6u) << "up, supervisor, coordinator, three workers";
  cluster_->Signal(SIGINT);
  EXPECT_EQ(cluster_->AwaitExit(kStepTimeout), 0) << cluster_->err();
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(UpTest, SigtermDrainsItsGroups) {
  StartCluster(2);
  const Result run = Ask({"run", "moe-layer", "--input", kLayerPath, "--ranks", "2"});
  ASSERT_EQ(run.status, 0) << run.err;
  cluster_->Signal(SIGTERM);
  EXPECT_EQ(cluster_->AwaitExit(kStepTimeout), 0) << cluster_->err();
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(UpTest, KilledItLeavesNothing) {
  StartCluster(4);
  cluster_->Signal(SIGKILL);
  EXPECT_TRUE(cluster_->AwaitExit(kStepTimeout).has_value());
  EXPECT_TRUE(NothingLeft(absl::Seconds(5)));
}

TEST_F(UpTest, ALostWorkerIsStartedAgain) {
  StartCluster(2);
  kill(worker_pids_[1], SIGKILL);
  EXPECT_TRUE(cluster_->AwaitErr("worker w1 was killed by signal 9", kStepTimeout).has_value());
  EXPECT_TRUE(cluster_->AwaitErr("worker w1 serves at", kStepTimeout).has_value());
  const auto worker = ParseJson(Ask({"get", "workers", "w1", "--json"}).out).fields();
  EXPECT_EQ(worker.at("state").string_value(), "READY");
  EXPECT_NE(static_cast<pid_t>(worker.at("pid").number_value()), worker_pids_[1]);
}

TEST_F(UpTest, WithoutItsCoordinatorItEnds) {
  StartCluster(2);
  pid_t coordinator = -1;
  for (const pid_t pid : Processes()) {
    const std::string program = std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"));
    if (absl::StrContains(program, "perigee-coordinator")) coordinator = pid;
  }
  ASSERT_GT(coordinator, 0);
  kill(coordinator, SIGKILL);
  EXPECT_EQ(cluster_->AwaitExit(kStepTimeout), 1);
  EXPECT_THAT(cluster_->err(), HasSubstr("the coordinator was lost"));
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(UpTest, APortInUseIsNamed) {
  StartCluster(1);
  const Result second = RunPerigee({"up", "--ranks", "1", "--address", address_});
  EXPECT_EQ(second.status, 1);
  EXPECT_EQ(second.out, "");
  EXPECT_THAT(second.err, HasSubstr(address_));
  EXPECT_THAT(Lines(second.err), testing::SizeIs(1));
}

TEST_F(UpTest, DataAndLogsStayWhereTheUserWants) {
  const std::string directory = scratch() + "/kept";
  StartCluster(1, {"--dir", directory});
  const Result second = RunPerigee({"up", "--ranks", "1", "--dir", directory});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("in use"));
  cluster_->Signal(SIGTERM);
  EXPECT_EQ(cluster_->AwaitExit(kStepTimeout), 0);
  EXPECT_TRUE(std::filesystem::exists(directory + "/logs/w0.log"));
  EXPECT_FALSE(std::filesystem::is_empty(directory + "/data"));
  int sockets = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    sockets += entry.is_socket() ? 1 : 0;
  }
  EXPECT_EQ(sockets, 0);
  StartCluster(1, {"--dir", directory});  // and a later cluster may use them again
}

TEST_F(UpTest, JsonNamesEveryProcess) {
  const auto up = Perigee({"up", "--ranks", "2", "--json"});
  ASSERT_TRUE(up->AwaitOut("]", kStepTimeout).has_value()) << up->err();
  ASSERT_TRUE(up->AwaitOut("}", kStepTimeout).has_value());
  up->Signal(SIGTERM);
  EXPECT_EQ(up->AwaitExit(kStepTimeout), 0);
  const auto json = ParseJson(up->out()).fields();
  EXPECT_THAT(json.at("coordinator").string_value(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(json.at("workers").list_value().values_size(), 2);
}

TEST_F(UpTest, WrongUseAndHelp) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"up"}, {"up", "--ranks", "0"}, {"up", "--ranks", "2", "--backend", "tpu"}}) {
    const Result result = RunPerigee(args);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Lines(result.err), testing::SizeIs(testing::Le(6)));
  }
  for (const char* command : {"up", "run", "get", "list", "describe"}) {
    const Result help = RunPerigee({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_THAT(help.out, HasSubstr("Usage: perigee"));
  }
}

TEST_F(UpTest, WithoutADeviceCudaIsWrongUse) {
  const CudaDevices devices = QueryCudaDevices();
  if (!devices.devices.empty()) GTEST_SKIP() << "this machine has a device";
  const Result result = RunPerigee({"up", "--ranks", "1", "--backend", "cuda"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Lines(result.err), testing::SizeIs(1)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("backend cuda: " + DescribeCudaDevices(devices)));
}

TEST_F(UpTest, WhatIsForADeviceIsRefusedByTheHostBackend) {
  Result result = RunPerigee({"up", "--ranks", "2", "--shared-gpu"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--shared-gpu is for --backend cuda"));
  result = RunPerigee({"up", "--ranks", "2", "--backend", "host", "--memory-handle", "fd"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--memory-handle is for --backend cuda"));
  result = RunPerigee({"up", "--ranks", "2", "--backend", "cuda", "--memory-handle", "ipc"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--memory-handle is 'ipc', expected auto|fd|fabric"));
}

TEST_F(UpTest, WorkersAreListedAndDescribed) {
  StartCluster(2);
  const Result list = Ask({"list", "workers"});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("workers/w0"));
  EXPECT_THAT(list.out, HasSubstr("READY"));
  const Result hosts = Ask({"describe", "hosts"});
  EXPECT_EQ(hosts.status, 0) << hosts.err;
  EXPECT_THAT(hosts.out, HasSubstr("no GPU is known of: w0 (backend host), w1 (backend host)"));
  const auto host = ParseJson(Ask({"describe", "hosts", "--json"}).out).fields().at("hosts");
  const auto of_host = host.list_value().values(0).struct_value().fields().at("workers");
  EXPECT_TRUE(of_host.list_value().values(0).struct_value().fields().at("gpu").has_null_value());
  EXPECT_EQ(Ask({"describe", "hosts", "elsewhere"}).status, 1);
  const Result described = Ask({"describe", "workers", "workers/w1"});
  EXPECT_EQ(described.status, 0) << described.err;
  EXPECT_THAT(described.out, HasSubstr("incarnation"));
  const auto json = ParseJson(Ask({"get", "workers", "--json"}).out).fields();
  ASSERT_EQ(json.at("workers").list_value().values_size(), 2);
  const auto worker = json.at("workers").list_value().values(0).struct_value().fields();
  EXPECT_EQ(worker.at("name").string_value(), "workers/w0");
  EXPECT_EQ(worker.at("rank").kind_case(), google::protobuf::Value::kNullValue);
  EXPECT_EQ(Ask({"list", "groups"}).out, "no groups\n");
  EXPECT_EQ(ParseJson(Ask({"list", "buffers", "--json"}).out)
                .fields()
                .at("buffers")
                .list_value()
                .values_size(),
            0);
}

TEST_F(UpTest, WhatIsNotThereIsNamed) {
  StartCluster(1);
  const Result worker = Ask({"get", "workers", "w9"});
  EXPECT_EQ(worker.status, 1);
  EXPECT_THAT(worker.err, HasSubstr("workers/w9"));
  EXPECT_EQ(Ask({"get", "groups", "none"}).status, 1);
  EXPECT_EQ(Ask({"get", "things"}).status, 2);
  EXPECT_EQ(Ask({"list", "generations"}).status, 2);
  EXPECT_EQ(RunPerigee({"list", "workers"}, {"PERIGEE_ADDRESS="}).status, 2);
  EXPECT_EQ(RunPerigee({"list", "workers", "--address", "127.0.0.1:1"}).status, 1);
}

}  // namespace
}  // namespace perigee
