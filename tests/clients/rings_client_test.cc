// Output slots by rank clients, on every way to a rank: several dispatches are pending, each with
// its rows where an ordinary one would have left them, until whoever reads them says so. Readers
// that are streams: rings_stream_test.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/rings_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

TEST_P(RingsClientTest, PendingDispatchesKeepWhatOrdinaryOnesDeliver) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  std::vector<SmallLayer> layers;
  for (int32_t i = 0; i < kSlots; ++i) layers.emplace_back(kRanks, random_());
  OnEveryRank([&](int32_t rank) {
    const RankMemory memory = MemoryOf(rank);
    ASSERT_EQ(memory.output_slots.size(), static_cast<size_t>(kSlots));
    for (int round = 0; round < 3; ++round) {
      PoisonAll(rank);
      ExpectOk(rank, LocalBarrier{});  // no rank has rows in the slots
      std::vector<Delivered> wanted;
      std::vector<LocalSlot> slots;
      for (int32_t i = 0; i < kSlots; ++i) {
        const LocalPlanId plan(i + 1);
        Poison(rank, memory.rows, memory.row_weights);
        const int32_t tokens = WriteTokens(layers[i], rank, memory);
        ExpectOk(rank, LocalDispatch{plan, tokens, true});
        wanted.push_back(InShard(rank));
        if (round == 1) {
          slots.push_back(ExpectOk(rank, LocalDispatchWithPlan{plan, tokens, true, kAnySlot}).slot);
        } else {
          slots.push_back(Dispatch(rank, plan, tokens));
        }
        EXPECT_TRUE(InShard(rank) == wanted.back()) << "the shard keeps its own";
      }
      for (int32_t i = 0; i < kSlots; ++i) {
        EXPECT_TRUE(InSlot(rank, slots[i]) == wanted[i]) << "round " << round << ", " << i;
        ExpectOk(rank, LocalReleaseSlot{slots[i]});
      }
    }
  });
  ExpectAllGoesOn();
}

// The same sums, with the experts of several dispatches behind the last of these.
TEST_P(RingsClientTest, LayersThatArePendingComeOutAsTheyDoOneByOne) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  OnEveryRank([&](int32_t rank) {
    RunLayer(layer_, *clients_[rank], kPlan);
    const std::string wanted = Sums(rank);
    std::vector<LocalSlot> slots;
    const int32_t tokens = WriteTokensOf(rank);
    for (int32_t i = 0; i < kSlots; ++i)
      slots.push_back(Dispatch(rank, LocalPlanId(i + 1), tokens));
    for (int32_t i = 0; i < kSlots; ++i) {
      const RankMemory memory = MemoryOf(rank);
      Put(memory, const_cast<BFloat16*>(memory.output.data()),
          std::vector<BFloat16>(tokens * clients_[rank]->hidden_size(), ToBFloat16(1e30f)));
      const LocalPlanId plan(i + 1);
      ExpectOk(rank, LocalPrefetchWeights{plan, 0, kVersion});
      const bool into_slot = i % 2 == 0;
      const LocalCompletion done =
          ExpectOk(rank, LocalRunExperts{plan, 0, kVersion, true, slots[i], into_slot});
      EXPECT_EQ(done.slot.identity != 0, into_slot);
      LocalCombine combine{.plan = plan};
      if (into_slot) combine.slot = done.slot;
      ExpectOk(rank, combine);
      EXPECT_TRUE(Sums(rank) == wanted) << i;
    }
  });
  ExpectAllGoesOn();
}

// Experts of the framework's own: from the slot into the shard, and released.
TEST_P(RingsClientTest, TheClientsOwnRowsAreSummedWhateverTheShardHeld) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  OnEveryRank([&](int32_t rank) {
    const RankMemory memory = MemoryOf(rank);
    const int32_t tokens = WriteTokensOf(rank);
    ExpectOk(rank, LocalDispatch{kPlan, tokens, true});
    ExpectOk(rank, LocalCombine{.plan = kPlan});
    const std::string wanted = Sums(rank);
    const LocalSlot slot = Dispatch(rank, kPlan, tokens);
    ExpectOk(rank, LocalDispatch{LocalPlanId(7), tokens, true});  // of another
    ExpectOk(rank, LocalBarrier{});
    const RankOutputSlot& from = memory.output_slots.at(slot.index);
    Put(memory, memory.rows.data(), Get(memory, from.rows.data(), from.rows.size()));
    ExpectOk(rank, LocalReleaseSlot{slot});
    LocalCombine combine{.plan = kPlan};
    ExpectRefused(rank, combine, "STALE_OBJECT", "are wanted");
    combine.own_rows = true;
    ExpectOk(rank, combine);
    EXPECT_TRUE(Sums(rank) == wanted);
  });
  ExpectAllGoesOn();
}

TEST_P(RingsClientTest, SlotsAreTakenInTurnAndNamesThatAreNoneAreRefused) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    std::vector<LocalSlot> slots;
    for (int32_t i = 0; i < kSlots; ++i) slots.push_back(Dispatch(rank, kPlan, tokens));
    const LocalDispatch next{kPlan, tokens, true, kAnySlot};
    ExpectRefused(rank, next, "SLOTS_IN_USE", "what is called needs 4 or more");
    ExpectOk(rank, LocalReleaseSlot{slots[1]});
    ExpectRefused(rank, next, "SLOTS_IN_USE",
                  absl::StrCat("slot ", slots[0].index, " is next and not released"));
    ExpectOk(rank, LocalReleaseSlot{slots[0]});
    ExpectRefused(rank, LocalReleaseSlot{slots[0]}, "STALE_OBJECT", "is released already");
    ExpectRefused(rank, LocalDispatch{kPlan, tokens, true, slots[1].index}, "STALE_OBJECT",
                  "the next in turn");
    const LocalSlot again = ExpectOk(rank, LocalDispatch{kPlan, tokens, true, slots[0].index}).slot;
    EXPECT_EQ(again.index, slots[0].index);
    EXPECT_GT(again.identity, slots[2].identity);
    ExpectRefused(rank, LocalReleaseSlot{slots[0]}, "STALE_OBJECT", "which is over");
    ExpectRefused(rank, LocalReleaseSlot{{kSlots, again.identity}}, "STALE_OBJECT",
                  "expected one of the 3");
    ExpectRefused(rank, LocalReleaseSlot{again, LocalRing::kExpertOutput}, "STALE_OBJECT",
                  "which is over");
    ExpectOk(rank, LocalReleaseSlot{again});
    ExpectOk(rank, LocalReleaseSlot{slots[2]});
  });
  ExpectAllGoesOn();
}

// One rank has no slot left and the others do: all leave, and take the same one again.
TEST_P(RingsClientTest, RanksThatHoldDifferentSlotsLeaveTogether) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  const int32_t holds = static_cast<int32_t>(random_() % kRanks);
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    std::vector<LocalSlot> slots;
    for (int32_t i = 0; i < kSlots; ++i) slots.push_back(Dispatch(rank, kPlan, tokens));
    if (rank != holds) ExpectOk(rank, LocalReleaseSlot{slots[0]});
    const LocalDispatch next{kPlan, tokens, true, kAnySlot};
    ExpectRefused(rank, next, rank == holds ? "SLOTS_IN_USE" : "DECLINED",
                  rank == holds ? "not released" : absl::StrCat("w", holds));
    if (rank == holds) ExpectOk(rank, LocalReleaseSlot{slots[0]});
    EXPECT_EQ(ExpectOk(rank, next).slot.index, slots[0].index);
  });
}

TEST_P(RingsClientTest, WhatAClientLeavesTakenTheNextOneTakes) {
  if (IsRemote()) GTEST_SKIP() << "a remote client has no slots";
  for (int round = 0; round < 2; ++round) {
    OnEveryRank([&](int32_t rank) { TakeAllSlots(rank); });
    clients_.clear();
    ASSERT_TRUE(cluster_->AwaitProgram().ok());
    clients_ = cluster_->Connect(GetParam().way);
  }
  OnEveryRank([&](int32_t rank) { TakeAllSlots(rank); });
  ExpectAllGoesOn();
}

TEST_P(RingsClientTest, ARemoteRankHasNoSlots) {
  if (!IsRemote()) GTEST_SKIP() << "of remote clients";
  OnEveryRank([&](int32_t rank) {
    EXPECT_TRUE(MemoryOf(rank).output_slots.empty());
    const int32_t tokens = WriteTokensOf(rank);
    for (const LocalOperation& operation :
         {LocalOperation(LocalDispatch{kPlan, tokens, true, kAnySlot}),
          LocalOperation(LocalDispatchWithPlan{kPlan, tokens, true, 0}),
          LocalOperation(LocalRunExperts{kPlan, 0, kVersion, true, LocalSlot{0, 1}}),
          LocalOperation(LocalCombine{.plan = kPlan, .slot = LocalSlot{0, 1}}),
          LocalOperation(LocalReleaseSlot{{0, 1}})}) {
      ExpectRefused(rank, operation, "INVALID_PROGRAM", "an output slot is meant");
    }
    EXPECT_EQ(clients_[rank]->ReleaseSlotBehind(nullptr, {0, 1}).status().code(),
              absl::StatusCode::kFailedPrecondition);
  });
  ExpectAllGoesOn();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, RingsClientTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
