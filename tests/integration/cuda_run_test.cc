// `perigee run --backend cuda`, and the loss of a worker: eight workers on one GPU, or
// with PERIGEE_DEVICES=N one on each of N. No MPS is started here: under it the kill of one worker
// takes the others' contexts along.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "tests/integration/loss_fixture.h"

namespace perigee {
namespace {

int DevicesAskedFor() {
  const char* given = std::getenv("PERIGEE_DEVICES");
  return given == nullptr ? 1 : std::atoi(given);
}

int Ranks() { return DevicesAskedFor() > 1 ? DevicesAskedFor() : 8; }

std::vector<std::string> OnDevices(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--backend", "cuda", "--ranks", std::to_string(Ranks())};
  if (DevicesAskedFor() == 1) args.push_back("--shared-gpu");
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class CudaRunTest : public LossTest {
 protected:
  void SetUp() override {
    const CudaDevices devices = QueryCudaDevices();
    const int asked_for = DevicesAskedFor();
    if (devices.devices.empty() && asked_for == 1) GTEST_SKIP() << DescribeCudaDevices(devices);
    ASSERT_GE(asked_for, 1) << "PERIGEE_DEVICES is no number of devices";
    ASSERT_LE(asked_for, static_cast<int>(devices.devices.size()))
        << "PERIGEE_DEVICES asks for " << asked_for
        << " CUDA devices; here: " << DescribeCudaDevices(devices);
  }
};

TEST_F(CudaRunTest, TheLayerPasses) {
  std::vector<std::string> args = OnDevices({"--input", kLayerPath, "--json"});
  args.insert(args.begin(), {"run", "moe-layer"});
  const Result result = RunPerigee(args);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_EQ(json.at("backend").string_value(), "cuda");
  EXPECT_EQ(json.at("per_rank").list_value().values_size(), Ranks());
  EXPECT_LE(json.at("relative_error").number_value(), 5e-3);
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration())) << "when the command has ended";
}

TEST_F(CudaRunTest, TheTrainingStepPasses) {
  std::vector<std::string> args = OnDevices({"--iterations", "2", "--json"});
  args.insert(args.begin(), {"run", "moe-step"});
  const Result result = RunPerigee(args);
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_EQ(json.at("backend").string_value(), "cuda");
  EXPECT_GT(json.at("replicas").number_value(), 0);
}

TEST_F(CudaRunTest, EveryRankNamesTheLostOneAndTheRunEnds) {
  const int lost_rank = Ranks() - 1;
  const auto run = LongRun(OnDevices({"--on-loss", "fail"}));
  const pid_t worker = AwaitWorker(lost_rank);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, lost_rank, Ranks());
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1);
  EXPECT_EQ(run->out(), "");
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(CudaRunTest, WaitingGoesOnInTheNextGeneration) {
  const int lost_rank = Ranks() / 2;
  // Fewer than on the host where workers share a GPU: without MPS they take turns there.
  const int iterations = DevicesAskedFor() == 1 ? 200 : 20000;
  const auto run = LongRun(OnDevices({"--on-loss", "wait", "--json"}), iterations);
  const pid_t worker = AwaitWorker(lost_rank);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, lost_rank, Ranks());
  ExpectGoesOn(*run, lost_rank);
}

TEST_F(CudaRunTest, MoreRanksThanDevicesAreToldBeforeAnythingIsStarted) {
  const std::string devices = std::to_string(QueryCudaDevices().devices.size());
  const Result result = RunPerigee({"up", "--ranks", "128", "--backend", "cuda"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  ASSERT_EQ(Lines(result.err).size(), 1u) << result.err;
  EXPECT_NE(result.err.find("128 workers need a device each, and this machine has " + devices),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("--shared-gpu"), std::string::npos);
}

}  // namespace
}  // namespace perigee
