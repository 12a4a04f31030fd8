// An owner-sharded source by rank clients, on every way to a rank: the rows and the plan of a
// dispatch, what is legal on the source shard, and what ends a view.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr LocalPlanId kOther{2};

class SourceClientTest : public RankClientTest {
 protected:
  void ExpectOk(int32_t rank, const LocalOperation& operation) {
    const LocalCompletion done = Run(rank, operation);
    EXPECT_TRUE(done.status.ok()) << CommandName(KindOf(operation)) << ", rank " << rank << ": "
                                  << done.status;
    EXPECT_EQ(done.reason, "");
  }
  std::string ReasonOf(int32_t rank, const LocalOperation& operation) {
    return Run(rank, operation).reason;
  }
  bool IsRemote() const { return GetParam().way == Way::kRemote; }

  // The rank's tokens where every rank may fetch them, and a view of them. in_place: the client
  // writes them there, where it can.
  void Prepare(int32_t rank, LocalPlanId plan, bool in_place) {
    const int32_t tokens = WriteTokensOf(rank);
    if (!in_place || IsRemote())
      return ExpectOk(rank, LocalPrepareSource{plan, tokens, true, true});
    const RankMemory memory = clients_[rank]->memory();
    const auto source = clients_[rank]->TakeSource({Access::kStore});
    ASSERT_TRUE(source.ok()) << source.status();
    const std::vector<LayerTensor> inputs = layer_.Inputs(rank);
    CopyIn(memory, source->hidden.data(), inputs[0].bytes.data(), inputs[0].bytes.size());
    CopyIn(memory, source->route_weights.data(), inputs[2].bytes.data(), inputs[2].bytes.size());
    // What is not to be read.
    Put(memory, memory.hidden.data(),
        std::vector<BFloat16>(memory.hidden.size(), ToBFloat16(7e5f)));
    Put(memory, memory.route_weights.data(),
        std::vector<float>(memory.route_weights.size(), -3.0f));
    ExpectOk(rank, LocalPrepareSource{plan, tokens, false, false});
  }
  void Materialise(int32_t rank, LocalPlanId plan) {
    const RankMemory memory = clients_[rank]->memory();
    Put(memory, memory.rows.data(), std::vector<BFloat16>(memory.rows.size(), ToBFloat16(7e5f)));
    Put(memory, memory.row_weights.data(), std::vector<float>(memory.row_weights.size(), -3.0f));
    ExpectOk(rank, LocalBarrier{});  // the last rows have been summed everywhere
    ExpectOk(rank, LocalMaterialise{plan});
  }
};

TEST_P(SourceClientTest, ALayerIsFetchedAsItIsDispatched) {
  for (int round = 0; round < 4; ++round) {
    if (round > 0) {
      layer_ = SmallLayer(kRanks, random_());
      cluster_->LoadWeights(layer_);
    }
    OnEveryRank([&](int32_t rank) {
      Prepare(rank, kPlan, /*in_place=*/round % 2 == 0);
      // More than once, and in the order that its consumer likes.
      for (int time = 0; time < 2; ++time) {
        Materialise(rank, kPlan);
        FinishLayer(layer_, *clients_[rank], kPlan);
      }
      // The plan is good for more.
      ExpectOk(rank, LocalDispatchWithPlan{kPlan, WriteTokensOf(rank), true});
      FinishLayer(layer_, *clients_[rank], kPlan);
    });
  }
  ExpectAllGoesOn();
}

TEST_P(SourceClientTest, WhatIsLegalOnTheSourceShardIsSaid) {
  for (const std::unique_ptr<RankClient>& client : clients_) {
    const RankSource source = client->memory().source;
    if (IsRemote()) {
      EXPECT_EQ(source.access.ToString(), "nothing");
      EXPECT_TRUE(source.hidden.empty());
      EXPECT_EQ(client->TakeSource({}).status().code(), absl::StatusCode::kFailedPrecondition);
      continue;
    }
    EXPECT_EQ(source.access.ToString(), "load, store, bulk_copy, atomics");
    EXPECT_EQ(source.hidden.size(), client->memory().hidden.size());
    EXPECT_EQ(source.route_weights.size(), client->memory().route_weights.size());
    const auto taken = client->TakeSource({Access::kLoad, Access::kStore});
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->hidden.data(), source.hidden.data());
  }
}

TEST_P(SourceClientTest, AViewDiesWithTheNextAndItsPlanDoesNot) {
  OnEveryRank([&](int32_t rank) {
    EXPECT_EQ(ReasonOf(rank, LocalMaterialise{kPlan}), "STALE_OBJECT");
    Prepare(rank, kPlan, true);
    Prepare(rank, kOther, false);
    const LocalCompletion dead = Run(rank, LocalMaterialise{kPlan});
    EXPECT_EQ(dead.reason, "STALE_OBJECT");
    EXPECT_THAT(std::string(dead.status.message()), HasSubstr("is of no source view that lives"));
    Materialise(rank, kOther);
    FinishLayer(layer_, *clients_[rank], kOther);
    ExpectOk(rank, LocalDispatchWithPlan{kPlan, WriteTokensOf(rank), true});
    FinishLayer(layer_, *clients_[rank], kPlan);
  });
}

TEST_P(SourceClientTest, ABadRouteIsToldAndEndsTheLastViewWhereRowsWereStored) {
  const int32_t bad = static_cast<int32_t>(random_() % (kRanks - 1));  // the last has no tokens
  for (const bool stores : {false, true}) {
    OnEveryRank([&](int32_t rank) {
      Prepare(rank, kPlan, true);
      const int32_t tokens = WriteTokensOf(rank);
      const RankMemory memory = clients_[rank]->memory();
      if (rank == bad) Put(memory, &memory.topk_experts[0], std::vector<int32_t>{4444});
      EXPECT_EQ(ReasonOf(rank, LocalPrepareSource{kOther, tokens, stores, stores}), "BAD_ROUTE");
      EXPECT_EQ(ReasonOf(rank, LocalMaterialise{kOther}), "STALE_OBJECT");
      EXPECT_EQ(ReasonOf(rank, LocalMaterialise{kPlan}), stores ? "STALE_OBJECT" : "");
    });
    ExpectAllGoesOn();
  }
}

TEST_P(SourceClientTest, APreparedPublicationKeepsMaterialiseOut) {
  OnEveryRank([&](int32_t rank) {
    Prepare(rank, kOther, false);
    const int32_t tokens = WriteTokensOf(rank);
    ExpectOk(rank, LocalPrepareDispatch{kPlan, tokens});
    ExpectOk(rank, LocalStoreRows{kPlan});
    ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
    EXPECT_EQ(ReasonOf(rank, LocalMaterialise{kOther}), "PUBLICATION_PENDING");
    ExpectOk(rank, LocalPublish{kPlan});
    FinishLayer(layer_, *clients_[rank], kPlan);
    Materialise(rank, kOther);
    FinishLayer(layer_, *clients_[rank], kOther);
  });
}

TEST_P(SourceClientTest, WhoComesAfterALeaverFindsNoView) {
  OnEveryRank([&](int32_t rank) { Prepare(rank, kPlan, true); });
  for (const auto& client : clients_) EXPECT_TRUE(client->Detach().ok());
  const absl::Status program = cluster_->AwaitProgram();
  EXPECT_TRUE(program.ok()) << program;
  clients_ = cluster_->Connect(GetParam().way);
  OnEveryRank(
      [&](int32_t rank) { EXPECT_EQ(ReasonOf(rank, LocalMaterialise{kPlan}), "STALE_OBJECT"); });
  ExpectAllGoesOn();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, SourceClientTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
