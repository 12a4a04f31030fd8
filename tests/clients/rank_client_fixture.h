// Tests of rank clients: a cluster with a client for each rank, on every way and backend.
#ifndef PERIGEE_TESTS_CLIENTS_RANK_CLIENT_FIXTURE_H_
#define PERIGEE_TESTS_CLIENTS_RANK_CLIENT_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "kernels/device/stream_pool.h"
#include "tests/clients/client_cluster.h"

namespace perigee {

struct Kind {
  Way way;
  std::string backend;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << NameOf(kind.way) << " " << kind.backend;
}

// Skipped where the backend's device is missing.
class RankClientTest : public ::testing::TestWithParam<Kind> {
 protected:
  RankClientTest() : random_(TestSeed()), layer_(kRanks, random_()) {}
  void SetUp() override {
    SeparateHardwareQueues();
    const CudaDevices devices = QueryCudaDevices();
    if (GetParam().backend == "cuda" && devices.devices.empty()) {
      GTEST_SKIP() << DescribeCudaDevices(devices);
    }
    cluster_ = std::make_unique<ClientCluster>(layer_, nullptr, GetParam().backend);
    BeforeConnect();
    clients_ = cluster_->Connect(GetParam().way);
  }

  // A group takes no further buffer while a rank of it is attached.
  virtual void BeforeConnect() {}

  static constexpr int32_t kRanks = ClientCluster::kRanks;
  static constexpr absl::Duration kLong = absl::Seconds(60);
  static constexpr LocalPlanId kPlan{1};

  // How the operation ended on the rank.
  LocalCompletion Run(int32_t rank, const LocalOperation& operation) {
    absl::StatusOr<LocalCompletion> done = clients_[rank]->Run(operation, kLong);
    EXPECT_TRUE(done.ok()) << "rank " << rank << ": " << done.status();
    return done.ok() ? *std::move(done) : LocalCompletion();
  }
  int32_t WriteTokensOf(int32_t rank) {
    return WriteTokens(layer_, rank, clients_[rank]->memory());
  }
  // The group goes on as if nothing had been.
  void ExpectAllGoesOn() {
    OnEveryRank([&](int32_t rank) { RunLayer(layer_, *clients_[rank], kPlan); });
  }

  std::mt19937_64 random_;
  SmallLayer layer_;
  std::unique_ptr<ClientCluster> cluster_;
  std::vector<std::unique_ptr<RankClient>> clients_;
};

// One that waits and shared a worker's hardware queue would hold that up, too: streams of tests
// come from where those of the workers do.
inline std::unique_ptr<PooledStream> TakeStream(int device) {
  return *PooledStream::Take(device, StreamPriority::kNormal);
}

inline std::vector<Kind> EveryWay() {
  std::vector<Kind> kinds;
  for (const char* backend : {"host", "cuda"}) {
    for (const Way way : {Way::kRemote, Way::kLocal, Way::kEmbedded})
      kinds.push_back({way, backend});
  }
  return kinds;
}
inline std::string NameOfWay(const ::testing::TestParamInfo<Kind>& info) {
  return NameOf(info.param.way) + "_" + info.param.backend;
}

}  // namespace perigee

#endif  // PERIGEE_TESTS_CLIENTS_RANK_CLIENT_FIXTURE_H_
