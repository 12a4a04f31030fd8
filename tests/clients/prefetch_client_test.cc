// A client that waits for a prefetch alone finds what the dispatch before it has brought, too.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

class PrefetchClientTest : public RankClientTest {
 protected:
  // Before any rank dispatches: every rank stores into all shards.
  void PoisonShards() {
    for (const std::unique_ptr<RankClient>& client : clients_) {
      const RankMemory memory = client->memory();
      const std::vector<BFloat16> rows(memory.rows.size(), BFloat16{0x7b7b});
      Put(memory, memory.rows.data(), rows);
      Put(memory, memory.row_weights.data(), std::vector<float>(memory.row_weights.size(), -7e7f));
    }
  }
  std::vector<LocalOperation> DispatchAndPrefetch(int32_t rank) {
    return {LocalDispatch{kPlan, WriteTokensOf(rank), true},
            LocalPrefetchWeights{kPlan, 0, ClientCluster::kVersion}};
  }
  // Every row of the shard and its weight, row by row; how many tokens' rows there are.
  int ExpectDispatched(int32_t rank) {
    const RankMemory memory = clients_[rank]->memory();
    const size_t elements = clients_[rank]->hidden_size();
    const size_t row_bytes = elements * sizeof(BFloat16);
    const std::string rows = BytesOf(memory, memory.rows);
    const std::string weights = BytesOf(memory, memory.row_weights);
    const auto sources = RowSourcesOf(layer_.geometry(), layer_.plan(), rank);
    int routes = 0;
    for (size_t row = 0; row < sources.size(); ++row) {
      const RowSource& source = sources[row];
      if (source.kind == RowSource::Kind::kUndefined) continue;
      const std::string found = rows.substr(row * row_bytes, row_bytes);
      if (source.kind == RowSource::Kind::kPadding) {
        EXPECT_EQ(found, std::string(row_bytes, 0)) << "rank " << rank << ", row " << row;
        continue;
      }
      ++routes;
      const std::vector<LayerTensor> inputs = layer_.Inputs(source.rank);
      EXPECT_EQ(found, inputs[0].bytes.substr(source.token * row_bytes, row_bytes))
          << "rank " << rank << ", row " << row;
      const size_t route = source.token * layer_.geometry().topk + source.k;
      EXPECT_EQ(weights.substr(row * sizeof(float), sizeof(float)),
                inputs[2].bytes.substr(route * sizeof(float), sizeof(float)))
          << "rank " << rank << ", row " << row;
    }
    return routes;
  }
  // `act` submits both on a rank and returns when the prefetch has ended; in three rounds.
  template <typename Act>
  void ExpectCovered(const Act& act) {
    for (int round = 0; round < 3; ++round) {
      layer_ = SmallLayer(kRanks, random_());
      cluster_->LoadWeights(layer_);
      PoisonShards();
      std::vector<int> routes(kRanks);
      OnEveryRank([&](int32_t rank) {
        act(rank);
        routes[rank] = ExpectDispatched(rank);
      });
      for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_GT(routes[rank], 0) << "rank " << rank;
    }
  }
  void ExpectEndsWell(int32_t rank, uint64_t command, absl::Duration timeout) {
    const auto done = clients_[rank]->Wait(command, timeout);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->status.ok()) << done->status;
  }
};

TEST_P(PrefetchClientTest, ItsEndCoversTheDispatchSubmittedBeforeIt) {
  ExpectCovered([&](int32_t rank) {
    uint64_t prefetch = 0;
    for (const LocalOperation& operation : DispatchAndPrefetch(rank)) {
      const auto submitted = clients_[rank]->Submit(operation);
      ASSERT_TRUE(submitted.ok()) << submitted.status();
      prefetch = *submitted;
    }
    ExpectEndsWell(rank, prefetch, kLong);
  });
}

TEST_P(PrefetchClientTest, ItsEndCoversTheDispatchOfItsProgram) {
  ExpectCovered([&](int32_t rank) {
    const auto first = clients_[rank]->SubmitProgram(DispatchAndPrefetch(rank));
    ASSERT_TRUE(first.ok()) << first.status();
    ExpectEndsWell(rank, *first + 1, kLong);
  });
}

TEST_P(PrefetchClientTest, AStreamThatWaitsForItIsBehindTheDispatch) {
  if (clients_[0]->memory().device < 0) GTEST_SKIP() << "no streams where memory is the host's";
  // Ahead: what is made for a stream's first use may wait for the device, and so for other ranks.
  std::vector<std::unique_ptr<PooledStream>> streams;
  for (const std::unique_ptr<RankClient>& client : clients_) {
    streams.push_back(TakeStream(client->memory().device));
    ASSERT_TRUE(client->SubmitBehind((*streams.back())->get(), LocalEmpty{}).ok());
  }
  ExpectCovered([&](int32_t rank) {
    CUstream_st* const raw = (*streams[rank])->get();
    const auto first = clients_[rank]->SubmitProgramBehind(raw, DispatchAndPrefetch(rank));
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(clients_[rank]->MakeWait(raw, *first + 1).ok());
    EXPECT_TRUE((*streams[rank])->Synchronize().ok());
    ExpectEndsWell(rank, *first + 1, kLong);
  });
}

// A remote client's shard is out of reach.
std::vector<Kind> WaysWithAShard() {
  std::vector<Kind> kinds;
  for (const Kind& kind : EveryWay()) {
    if (kind.way != Way::kRemote) kinds.push_back(kind);
  }
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Ways, PrefetchClientTest, ::testing::ValuesIn(WaysWithAShard()),
                         NameOfWay);

}  // namespace
}  // namespace perigee
