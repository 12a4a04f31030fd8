// Output slots by rank clients, on every way to a rank: several dispatches are pending, each with
// its rows where an ordinary one would have left them, until whoever reads them says so.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/caller_stream.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/device/stream.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kSlots = ClientCluster::kDispatchOutputSlots;
constexpr uint64_t kVersion = ClientCluster::kVersion;

// What a dispatch leaves, all of it.
struct Delivered {
  std::string rows, row_weights;
  friend bool operator==(const Delivered&, const Delivered&) = default;
};

class RingsClientTest : public RankClientTest {
 protected:
  bool IsRemote() const { return GetParam().way == Way::kRemote; }
  LocalCompletion ExpectOk(int32_t rank, const LocalOperation& operation) {
    const LocalCompletion done = Run(rank, operation);
    EXPECT_TRUE(done.status.ok()) << CommandName(KindOf(operation)) << ", rank " << rank << ": "
                                  << done.status;
    return done;
  }
  void ExpectRefused(int32_t rank, const LocalOperation& operation, const std::string& reason,
                     const std::string& text) {
    const LocalCompletion done = Run(rank, operation);
    EXPECT_EQ(done.reason, reason) << done.status;
    EXPECT_THAT(std::string(done.status.message()), HasSubstr(text));
  }
  LocalSlot Dispatch(int32_t rank, LocalPlanId plan, int32_t tokens) {
    const LocalCompletion done =
        ExpectOk(rank, LocalDispatch{plan, tokens, true, absl::optional<int32_t>(kAnySlot)});
    EXPECT_EQ(done.slot.identity, done.sequence.value);
    return done.slot;
  }
  RankMemory MemoryOf(int32_t rank) const { return clients_[rank]->memory(); }
  void Poison(int32_t rank, absl::Span<BFloat16> rows, absl::Span<float> row_weights) {
    Put(MemoryOf(rank), rows.data(), std::vector<BFloat16>(rows.size(), ToBFloat16(7e5f)));
    Put(MemoryOf(rank), row_weights.data(), std::vector<float>(row_weights.size(), -3.0f));
  }
  // While the rank has nothing in the slots.
  void PoisonAll(int32_t rank) {
    const RankMemory memory = MemoryOf(rank);
    Poison(rank, memory.rows, memory.row_weights);
    for (const RankOutputSlot& slot : memory.output_slots) {
      Poison(rank, slot.rows, slot.row_weights);
    }
  }
  Delivered InShard(int32_t rank) const {
    const RankMemory memory = MemoryOf(rank);
    return {BytesOf(memory, memory.rows), BytesOf(memory, memory.row_weights)};
  }
  Delivered InSlot(int32_t rank, const LocalSlot& slot) const {
    const RankMemory memory = MemoryOf(rank);
    const RankOutputSlot& found = memory.output_slots.at(slot.index);
    return {BytesOf(memory, found.rows), BytesOf(memory, found.row_weights)};
  }
  // Sums of a rank's last combine, none of which is of tokens that it does not have.
  std::string Sums(int32_t rank) const {
    const RankMemory memory = MemoryOf(rank);
    return BytesOf(memory, memory.output);
  }
  void TakeAllSlots(int32_t rank) {
    std::vector<bool> taken(kSlots);
    for (int32_t i = 0; i < kSlots; ++i) {
      const LocalSlot slot = Dispatch(rank, kPlan, WriteTokensOf(rank));
      ASSERT_GE(slot.index, 0);
      ASSERT_LT(slot.index, kSlots);
      EXPECT_FALSE(taken[slot.index]);
      taken[slot.index] = true;
    }
  }
};

TEST_P(RingsClientTest, PendingDispatchesKeepWhatOrdinaryOnesDeliver) {
  if (IsRemote()) return;
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
  if (IsRemote()) return;
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
  if (IsRemote()) return;
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
  if (IsRemote()) return;
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
  if (IsRemote()) return;
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
  if (IsRemote()) return;
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
  if (!IsRemote()) return;
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

// Where there are streams. One thread for all ranks: nothing here waits.
class RingsStreamTest : public RingsClientTest {
 protected:
  bool HasStreams() const { return MemoryOf(0).device >= 0; }
  uint64_t Submit(int32_t rank, const LocalOperation& operation) {
    const absl::StatusOr<uint64_t> command = clients_[rank]->Submit(operation);
    EXPECT_TRUE(command.ok()) << command.status();
    return command.value_or(0);
  }
  void ExpectEnds(int32_t rank, uint64_t command) {
    const auto done = clients_[rank]->Wait(command, kLong);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->status.ok()) << done->status;
  }
};

TEST_P(RingsStreamTest, AHostsMemoryIsReadByNoStream) {
  if (IsRemote() || HasStreams()) return;
  for (const absl::Status& status : {clients_[0]->ReleaseSlotBehind(nullptr, {0, 1}).status(),
                                     clients_[0]->CaptureSlotRead(nullptr, 0)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no stream uses it"));
  }
  EXPECT_EQ(clients_[0]->ReleaseSlotBehind(nullptr, {kSlots, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A stream that stands still holds its slot, and nothing else.
TEST_P(RingsStreamTest, OnlyADispatchThatTakesTheSlotWaitsForItsReader) {
  if (IsRemote() || !HasStreams()) return;
  const int device = MemoryOf(0).device;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<PrivateDeviceMemory>> gates;
  std::vector<LocalSlot> slots(kRanks);
  OnEveryRank([&](int32_t rank) { slots[rank] = Dispatch(rank, kPlan, WriteTokensOf(rank)); });
  std::vector<Delivered> wanted, read(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    wanted.push_back(InSlot(rank, slots[rank]));
    streams.push_back(*Stream::Create(device));
    gates.push_back(*PrivateDeviceMemory::Allocate(device, sizeof(uint64_t)));
    auto* const gate = reinterpret_cast<uint64_t*>(gates[rank]->data());
    ASSERT_TRUE(WaitForWord(device, streams[rank]->get(), gate, 1).ok());
    const auto released = clients_[rank]->ReleaseSlotBehind(streams[rank]->get(), slots[rank]);
    ASSERT_TRUE(released.ok()) << released.status();
    ExpectEnds(rank, *released);
  }
  // The shard, and the slots that are not read.
  OnEveryRank([&](int32_t rank) {
    RunLayer(layer_, *clients_[rank], LocalPlanId(2));
    for (int32_t i = 1; i < kSlots; ++i) {
      ExpectOk(rank, LocalReleaseSlot{Dispatch(rank, kPlan, WriteTokensOf(rank))});
    }
  });
  std::vector<uint64_t> waits;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(InSlot(rank, slots[rank]) == wanted[rank]) << "its reader is not done";
    waits.push_back(
        Submit(rank, LocalDispatch{kPlan, WriteTokensOf(rank), true, slots[rank].index}));
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(clients_[rank]->Wait(waits[rank], absl::ZeroDuration()).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    Put(MemoryOf(rank), reinterpret_cast<uint64_t*>(gates[rank]->data()), std::vector<uint64_t>{1});
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) ExpectEnds(rank, waits[rank]);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, RingsClientTest, ::testing::ValuesIn(EveryWay()), NameOfWay);
INSTANTIATE_TEST_SUITE_P(EveryWay, RingsStreamTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
