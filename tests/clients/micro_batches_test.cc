// Several micro-batches in flight on one group, each in a buffer of its own: what one buffer's
// ranks do, or wait for, is nothing to the other's. For clients of a rank that is in reach; remote
// ranks share the group by programs, one at a time.
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

constexpr int kBuffers = 2;
constexpr int kLayers = 6;  // of each buffer

// One rank's tokens of a layer.
struct Tokens {
  int32_t count = 0;
  std::vector<BFloat16> hidden;
  std::vector<int32_t> topk_experts;
  std::vector<float> route_weights;
};
// All that comes out of a layer on one rank.
struct Result {
  std::vector<int32_t> dst;
  std::string output;
  std::string gathered_weights;
  friend bool operator==(const Result&, const Result&) = default;
};
using Results = std::array<std::vector<std::vector<Result>>, kBuffers>;  // [buffers][layers][R]

class MicroBatchesTest : public RankClientTest {
 protected:
  MicroBatchesTest() : other_layer_(kRanks, random_()) {}

  void BeforeConnect() override {
    // Longer than all that is done while it is held, on a machine however busy.
    other_buffer_ = cluster_->AddBuffer("other", other_layer_, 2 * kLong);
  }
  void SetUp() override {
    RankClientTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    other_clients_ = cluster_->Connect(GetParam().way, other_buffer_);
    for (auto& layers : tokens_) {
      layers.resize(kLayers);
      for (auto& ranks : layers) {
        for (int32_t rank = 0; rank < kRanks; ++rank) ranks.push_back(RandomTokens());
      }
    }
  }

  Tokens RandomTokens() {
    const Geometry& geometry = layer_.geometry();
    Tokens tokens;
    tokens.count = static_cast<int32_t>(random_() % (geometry.tokens + 1));
    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < tokens.count * clients_[0]->hidden_size(); ++i) {
      tokens.hidden.push_back(ToBFloat16(normal(random_)));
    }
    for (int32_t i = 0; i < tokens.count * geometry.topk; ++i) {
      // Half of the routes go to one expert, so that there are replicas.
      tokens.topk_experts.push_back(
          random_() % 2 == 0 ? 0 : static_cast<int32_t>(random_() % geometry.experts));
      tokens.route_weights.push_back(static_cast<float>(random_() % 1000) / 1000);
    }
    return tokens;
  }

  RankClient& client(int buffer, int32_t rank) {
    return buffer == 0 ? *clients_[rank] : *other_clients_[rank];
  }

  // Submits a whole layer, and waits for nothing; the number of its first command.
  uint64_t Begin(int buffer, int layer, int32_t rank) {
    RankClient& on = client(buffer, rank);
    const RankMemory memory = on.memory();
    const Tokens& tokens = tokens_[buffer][layer][rank];
    Put(memory, memory.hidden.data(), tokens.hidden);
    Put(memory, memory.topk_experts.data(), tokens.topk_experts);
    Put(memory, memory.route_weights.data(), tokens.route_weights);
    Put(memory, const_cast<BFloat16*>(memory.output.data()),
        std::vector<BFloat16>(memory.output.size(), ToBFloat16(1e30f)));
    Put(memory, const_cast<float*>(memory.gathered_weights.data()),
        std::vector<float>(memory.gathered_weights.size(), -7.0f));
    const uint64_t version = ClientCluster::kVersion;
    const auto first = on.SubmitProgram(std::vector<LocalOperation>{
        LocalDispatch{kPlan, tokens.count, true}, LocalPrefetchWeights{kPlan, 0, version},
        LocalRunExperts{kPlan, 0, version, true}, LocalCombine{kPlan, true}});
    EXPECT_TRUE(first.ok()) << first.status();
    return first.value_or(0);
  }
  Result End(int buffer, int layer, int32_t rank, uint64_t first) {
    RankClient& on = client(buffer, rank);
    for (uint64_t command = first; command < first + kCommands; ++command) {
      const auto done = on.Wait(command, kLong);
      EXPECT_TRUE(done.ok()) << done.status();
      if (!done.ok()) return {};
      EXPECT_TRUE(done->status.ok()) << "buffer " << buffer << ", layer " << layer << ", rank "
                                     << rank << ", command " << command << ": " << done->status;
    }
    const RankMemory memory = on.memory();
    const size_t routes = tokens_[buffer][layer][rank].topk_experts.size();
    return {Get(memory, memory.plan.dst, routes), BytesOf(memory, memory.output),
            BytesOf(memory, memory.gathered_weights)};
  }
  // One layer after the other, of one buffer after the other.
  Results OneAfterTheOther() {
    Results results = Empty();
    for (int layer = 0; layer < kLayers && !HasFailure(); ++layer) {
      for (int buffer = 0; buffer < kBuffers; ++buffer) {
        OnEveryRank([&](int32_t rank) {
          results[buffer][layer][rank] = End(buffer, layer, rank, Begin(buffer, layer, rank));
        });
      }
    }
    EXPECT_NE(results[0][0], results[1][0]);
    EXPECT_NE(results[0][0], results[0][1]);
    return results;
  }
  static Results Empty() {
    Results results;
    for (auto& layers : results) layers.assign(kLayers, std::vector<Result>(kRanks));
    return results;
  }
  bool IsUnderWay(int buffer, int32_t rank, uint64_t command) {
    return absl::IsDeadlineExceeded(
        client(buffer, rank).Wait(command, absl::ZeroDuration()).status());
  }

  static constexpr uint64_t kCommands = 4;  // of a layer
  SmallLayer other_layer_;
  std::string other_buffer_;
  std::vector<std::unique_ptr<RankClient>> other_clients_;
  std::array<std::vector<std::vector<Tokens>>, kBuffers> tokens_;  // [buffers][layers][R]
};

// Each buffer has its own weights, and the sums that these give.
TEST_P(MicroBatchesTest, EachBufferHasItsOwnLayer) {
  OnEveryRank([&](int32_t rank) {
    RunLayer(layer_, *clients_[rank], kPlan);
    RunLayer(other_layer_, *other_clients_[rank], kPlan);
    RunLayer(layer_, *clients_[rank], kPlan);
  });
}

// A rank has a thread, which begins both layers before it waits for either; and ranks differ in
// which comes first, so that none can be over before the other has begun.
TEST_P(MicroBatchesTest, LayersThatAreUnderWayTogetherHaveTheBitsOfOneAfterTheOther) {
  const Results wanted = OneAfterTheOther();
  Results results = Empty();
  OnEveryRank([&](int32_t rank) {
    for (int layer = 0; layer < kLayers && !HasFailure(); ++layer) {
      const int first = (rank + layer) % kBuffers;
      const int second = 1 - first;
      const uint64_t of_first = Begin(first, layer, rank);
      const uint64_t of_second = Begin(second, layer, rank);
      results[second][layer][rank] = End(second, layer, rank, of_second);
      results[first][layer][rank] = End(first, layer, rank, of_first);
    }
  });
  EXPECT_TRUE(results == wanted);
}

TEST_P(MicroBatchesTest, WithAThreadForEachBufferOfARankTheyHaveTheSameBits) {
  const Results wanted = OneAfterTheOther();
  Results results = Empty();
  std::vector<std::thread> threads;
  for (int buffer = 0; buffer < kBuffers; ++buffer) {
    threads.emplace_back([&, buffer] {
      OnEveryRank([&](int32_t rank) {
        for (int layer = 0; layer < kLayers && !HasFailure(); ++layer) {
          results[buffer][layer][rank] = End(buffer, layer, rank, Begin(buffer, layer, rank));
        }
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(results == wanted);
}

// A rank has not come to the other buffer's layer: that one waits, and this buffer's go on.
TEST_P(MicroBatchesTest, ABufferThatWaitsForARankHoldsUpNoOther) {
  const Results wanted = OneAfterTheOther();
  const auto late = static_cast<int32_t>(random_() % kRanks);
  std::vector<uint64_t> held(kRanks);
  OnEveryRank([&](int32_t rank) {
    if (rank != late) held[rank] = Begin(1, 0, rank);
  });
  Results results = Empty();
  OnEveryRank([&](int32_t rank) {
    for (int layer = 0; layer < kLayers && !HasFailure(); ++layer) {
      results[0][layer][rank] = End(0, layer, rank, Begin(0, layer, rank));
    }
  });
  EXPECT_TRUE(results[0] == wanted[0]);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == late) continue;
    EXPECT_TRUE(IsUnderWay(1, rank, held[rank])) << "rank " << rank << " waits for " << late;
  }
  held[late] = Begin(1, 0, late);
  OnEveryRank([&](int32_t rank) { results[1][0][rank] = End(1, 0, rank, held[rank]); });
  EXPECT_TRUE(results[1][0] == wanted[1][0]);
}

std::vector<Kind> WaysInReach() {
  std::vector<Kind> kinds = EveryWay();
  std::erase_if(kinds, [](const Kind& kind) { return kind.way == Way::kRemote; });
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(InReach, MicroBatchesTest, ::testing::ValuesIn(WaysInReach()), NameOfWay);

}  // namespace
}  // namespace perigee
