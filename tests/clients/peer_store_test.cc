// Producers that store into every rank's rows themselves, on every way to a rank: what a buffer
// with peer_store is for.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr AccessSet kStores = {Access::kStore};

class PeerStoreTest : public RankClientTest {
 protected:
  bool mapped() const { return GetParam().way != Way::kRemote; }
  void ExpectOk(int32_t rank, const LocalOperation& operation) {
    const LocalCompletion done = Run(rank, operation);
    EXPECT_TRUE(done.status.ok()) << CommandName(KindOf(operation)) << ", rank " << rank << ": "
                                  << done.status;
  }
  void PrepareDispatch(int32_t rank) {
    const RankMemory memory = clients_[rank]->memory();
    Put(memory, memory.rows.data(), std::vector<BFloat16>(memory.rows.size(), ToBFloat16(7e5f)));
    ExpectOk(rank, LocalPrepareDispatch{kPlan, WriteTokensOf(rank)});
  }
  // How many rows went to each rank.
  std::vector<int> Produce(int32_t rank) {
    const RankMemory memory = clients_[rank]->memory();
    const absl::StatusOr<std::vector<BFloat16*>> peers = memory.TakePeerRows(kStores);
    EXPECT_TRUE(peers.ok()) << peers.status();
    EXPECT_EQ((*peers)[rank], memory.rows.data());
    const Geometry& geometry = layer_.geometry();
    const std::string bytes = layer_.Inputs(rank)[0].bytes;
    const int32_t hidden = clients_[rank]->hidden_size();
    const size_t row_bytes = hidden * sizeof(BFloat16);
    const std::vector<int32_t> dst =
        Get(memory, memory.plan.dst, bytes.size() / row_bytes * geometry.topk);
    std::vector<int> stored(kRanks);
    for (size_t route = 0; route < dst.size(); ++route) {
      if (dst[route] < 0) continue;
      const int32_t to = dst[route] / geometry.logical_rows();
      const size_t row = dst[route] % geometry.logical_rows();
      CopyIn(memory, (*peers)[to] + row * hidden, bytes.data() + route / geometry.topk * row_bytes,
             row_bytes);
      ++stored[to];
    }
    return stored;
  }
};

TEST_P(PeerStoreTest, WhatProducersStoreIsPublishedAsItIsDispatched) {
  if (!mapped()) {
    EXPECT_EQ(clients_[0]->memory().TakePeerRows(kStores).status().code(),
              absl::StatusCode::kFailedPrecondition);
    return;
  }
  int elsewhere = 0;
  for (int round = 0; round < 3; ++round) {
    layer_ = SmallLayer(kRanks, random_());
    cluster_->LoadWeights(layer_);
    std::vector<std::vector<int>> stored(kRanks);
    OnEveryRank([&](int32_t rank) {
      PrepareDispatch(rank);
      const bool prepared_first = (round + rank) % 2 == 0;
      if (prepared_first) ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
      stored[rank] = Produce(rank);
      if (!prepared_first) ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
      ExpectOk(rank, LocalPublish{kPlan});
      FinishLayer(layer_, *clients_[rank], kPlan);
    });
    for (int32_t from = 0; from < kRanks; ++from) {
      for (int32_t to = 0; to < kRanks; ++to) elsewhere += from == to ? 0 : stored[from][to];
    }
  }
  EXPECT_GT(elsewhere, 0) << "no row left its rank";
  ExpectAllGoesOn();
}

// A process that does not know, or does not care, that its generation has ended.
TEST_P(PeerStoreTest, StoresOfAnEndedGenerationReachNoLaterOne) {
  if (!mapped()) return;
  const int32_t lost = static_cast<int32_t>(random_() % kRanks);
  const int32_t late = (lost + 1) % kRanks;
  OnEveryRank([&](int32_t rank) { PrepareDispatch(rank); });
  cluster_->Lose(lost);
  OnEveryRank([&](int32_t rank) { (void)clients_[rank]->Run(LocalPublish{kPlan}, kLong); });
  const std::vector<std::unique_ptr<RankClient>> old = std::move(clients_);
  cluster_->Replace(lost, layer_);
  clients_ = cluster_->Connect(GetParam().way);
  OnEveryRank([&](int32_t rank) {
    PrepareDispatch(rank);
    (void)Produce(rank);
    if (rank == late) {
      const RankMemory memory = old[late]->memory();
      const absl::StatusOr<std::vector<BFloat16*>> peers = memory.TakePeerRows(kStores);
      ASSERT_TRUE(peers.ok()) << peers.status();
      const std::vector<BFloat16> poison(memory.rows.size(), ToBFloat16(-3e7f));
      for (BFloat16* rows : *peers) Put(memory, rows, poison);
    }
    ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
    ExpectOk(rank, LocalPublish{kPlan});
    FinishLayer(layer_, *clients_[rank], kPlan);
  });
}

TEST_P(PeerStoreTest, AfterDetachTheRowsAreThisProcessesOwn) {
  if (!mapped()) return;
  ExpectAllGoesOn();
  const RankMemory memory = clients_[0]->memory();
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(clients_[rank]->Detach().ok()) << rank;
  }
  const absl::StatusOr<std::vector<BFloat16*>> peers = memory.TakePeerRows(kStores);
  ASSERT_TRUE(peers.ok()) << peers.status();
  for (BFloat16* rows : *peers) {
    EXPECT_EQ(Get(memory, rows, 8), std::vector<BFloat16>(8, ToBFloat16(0.0f)));
    Put(memory, rows, std::vector<BFloat16>(8, ToBFloat16(1.0f)));
  }
  const std::vector<std::unique_ptr<RankClient>> old = std::move(clients_);
  ASSERT_TRUE(cluster_->AwaitProgram().ok());
  clients_ = cluster_->Connect(GetParam().way);
  ExpectAllGoesOn();
}

TEST_P(PeerStoreTest, WhatAMappingDoesNotAllowIsRefusedToAConsumer) {
  RankMemory memory = clients_[0]->memory();
  if (!mapped()) return;
  memory.peer_access = kReadAccess;
  EXPECT_TRUE(memory.TakePeerRows({Access::kLoad}).ok());
  const absl::Status status = memory.TakePeerRows(kStores).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("allows load, bulk_copy, the consumer needs store"));
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PeerStoreTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
