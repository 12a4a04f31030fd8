// `perigee run moe-layer --backend cuda --shared-gpu`: eight workers on one GPU, and the loss of
// one. No MPS is started here: under it the kill of one worker takes the others' contexts along.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "tests/integration/loss_fixture.h"

namespace perigee {
namespace {

const std::vector<std::string> kShared = {"--backend", "cuda", "--shared-gpu"};

std::vector<std::string> Shared(const std::vector<std::string>& more) {
  std::vector<std::string> args = kShared;
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class CudaRunTest : public LossTest {
 protected:
  void SetUp() override {
    const CudaDevices devices = QueryCudaDevices();
    if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  }
};

TEST_F(CudaRunTest, TheLayerPassesOnEightWorkers) {
  std::vector<std::string> args = {"run", "moe-layer", "--input", kLayerPath, "--json"};
  args.insert(args.end(), kShared.begin(), kShared.end());
  const Result result = RunPerigee(args);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = ParseJson(result.out).fields();
  EXPECT_EQ(json.at("result").string_value(), "PASS");
  EXPECT_EQ(json.at("backend").string_value(), "cuda");
  EXPECT_EQ(json.at("per_rank").list_value().values_size(), 8);
  EXPECT_LE(json.at("relative_error").number_value(), 5e-3);
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration())) << "when the command has ended";
}

TEST_F(CudaRunTest, EveryRankNamesTheLostOneAndTheRunEnds) {
  const auto run = LongRun(Shared({"--on-loss", "fail"}));
  const pid_t worker = AwaitWorker(5);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, 5);
  EXPECT_EQ(run->AwaitExit(kStepTimeout), 1);
  EXPECT_EQ(run->out(), "");
  EXPECT_TRUE(NothingLeft(absl::ZeroDuration()));
}

TEST_F(CudaRunTest, WaitingGoesOnInTheNextGeneration) {
  // Fewer than on the host: without MPS the workers take turns on the GPU.
  const auto run = LongRun(Shared({"--on-loss", "wait", "--json"}), 200);
  const pid_t worker = AwaitWorker(2);
  ASSERT_GT(worker, 0);
  KillAndAwaitEveryRank(*run, worker, 2);
  ExpectGoesOn(*run, 2);
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
