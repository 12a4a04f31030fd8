// Output slots whose readers are streams and CUDA graphs of the client's: nothing waits for these
// but a dispatch that takes the slot again.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/caller_stream.h"
#include "kernels/device/captured_graph.h"
#include "kernels/device/private_device_memory.h"
#include "tests/clients/rings_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// What a dispatch that does not wait needs less than, on a GPU.
constexpr absl::Duration kLongerThanADispatch = absl::Milliseconds(200);

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
  if (IsRemote() || HasStreams()) GTEST_SKIP() << "of memory that is the host's";
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
  if (IsRemote() || !HasStreams()) GTEST_SKIP() << "no stream reads its memory";
  const int device = MemoryOf(0).device;
  std::vector<std::unique_ptr<PooledStream>> streams;
  std::vector<std::unique_ptr<PrivateDeviceMemory>> gates;
  std::vector<LocalSlot> slots(kRanks);
  OnEveryRank([&](int32_t rank) { slots[rank] = Dispatch(rank, kPlan, WriteTokensOf(rank)); });
  std::vector<Delivered> wanted, read(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    wanted.push_back(InSlot(rank, slots[rank]));
    streams.push_back(TakeStream(device));
    gates.push_back(*PrivateDeviceMemory::Allocate(device, sizeof(uint64_t)));
    auto* const gate = reinterpret_cast<uint64_t*>(gates[rank]->data());
    ASSERT_TRUE(WaitForWord(device, (*streams[rank])->get(), gate, 1).ok());
    const auto released = clients_[rank]->ReleaseSlotBehind((*streams[rank])->get(), slots[rank]);
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
    EXPECT_EQ(clients_[rank]->Wait(waits[rank], kLongerThanADispatch).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(InSlot(rank, slots[rank]) == wanted[rank]) << "its reader is not done";
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    Put(MemoryOf(rank), reinterpret_cast<uint64_t*>(gates[rank]->data()), std::vector<uint64_t>{1});
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) ExpectEnds(rank, waits[rank]);
}

// Steps of one rank, whose readers are streams of their own: one for each slot, and one that brings
// the tokens. Nothing waits for any of them but dispatches, until all is through.
class SlotReaders {
 public:
  static constexpr int kSteps = 8 * kSlots;
  // Of a slot's rows, one over the other, so that a dispatch that did not wait would be seen. All
  // that a stream is given fits into its queue of a thousand, so that no thread waits for room.
  static constexpr int kReads = 60;

  explicit SlotReaders(RankClient& client, size_t used_bytes)
      : client_(client), memory_(client.memory()), bytes_(used_bytes) {
    for (int32_t i = 0; i <= kSlots; ++i) streams_.push_back(TakeStream(device()));
    for (int i = 0; i < kSteps; ++i) seen_.push_back(Allocate(bytes_));
    for (int32_t i = 0; i < kSlots; ++i) read_.push_back(Allocate(bytes_));
    for (int i = 0; i < 2; ++i) tokens_.push_back(Allocate(token_bytes()));
  }

  // Of every second step.
  void SetTokens(int which, const std::vector<BFloat16>& tokens) {
    Put(memory_, reinterpret_cast<BFloat16*>(tokens_[which]->data()), tokens);
  }
  CUstream_st* stream(int32_t slot) const { return (*streams_[slot])->get(); }
  // The step's tokens to where a dispatch reads them, behind the last dispatch.
  absl::StatusOr<uint64_t> Dispatch(int step, const absl::optional<uint64_t>& last,
                                    const LocalOperation& dispatch) {
    CUstream_st* const in = stream(kSlots);
    absl::Status status = last ? client_.MakeWait(in, *last) : absl::OkStatus();
    if (status.ok()) {
      status = CopyOnStream(device(), in, memory_.hidden.data(), tokens_[step % 2]->data(),
                            token_bytes());
    }
    if (!status.ok()) return status;
    return client_.SubmitBehind(in, dispatch);
  }
  absl::Status Read(int32_t slot) {
    absl::Status status;
    for (int i = 0; i < kReads && status.ok(); ++i) {
      status = CopyOnStream(device(), stream(slot), read_[slot]->data(),
                            memory_.output_slots[slot].rows.data(), bytes_);
    }
    return status;
  }
  absl::Status Keep(int step, int32_t slot) {
    return CopyOnStream(device(), stream(slot), seen_[step]->data(), read_[slot]->data(), bytes_);
  }
  void ExpectSeen(const std::vector<std::string>& wanted) {
    for (const auto& stream : streams_) ASSERT_TRUE((*stream)->Synchronize().ok());
    for (int step = 0; step < kSteps; ++step) {
      std::string seen(bytes_, 0);
      CopyOut(memory_, seen.data(), seen_[step]->data(), bytes_);
      EXPECT_TRUE(seen == wanted[step % 2]) << "step " << step;
    }
  }
  int device() const { return memory_.device; }

 private:
  size_t token_bytes() const { return memory_.hidden.size() * sizeof(BFloat16); }
  std::unique_ptr<PrivateDeviceMemory> Allocate(size_t bytes) const {
    return *PrivateDeviceMemory::Allocate(device(), std::max<size_t>(bytes, 1));
  }

  RankClient& client_;
  const RankMemory memory_;
  const size_t bytes_;  // of the rows that a plan uses
  std::vector<std::unique_ptr<PooledStream>> streams_;
  std::vector<std::unique_ptr<PrivateDeviceMemory>> seen_, read_, tokens_;
};

class SlotReadersTest : public RingsStreamTest {
 protected:
  // A plan, and readers for what it uses. Memory is taken and given back while no rank runs.
  void Prepare() {
    OnEveryRank([&](int32_t rank) {
      ExpectOk(rank, LocalDispatch{kPlan, WriteTokensOf(rank), true});
    });
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const RankMemory memory = MemoryOf(rank);
      const int32_t groups = clients_[rank]->geometry().groups();
      const size_t used = Get(memory, memory.plan.cu_seqlens, groups).back();
      bytes_.push_back(used * clients_[rank]->hidden_size() * sizeof(BFloat16));
      readers_.push_back(std::make_unique<SlotReaders>(*clients_[rank], bytes_[rank]));
      wanted_.emplace_back();
    }
    for (int which = 0; which < 2; ++which) {
      OnEveryRank([&](int32_t rank) {
        const RankMemory memory = MemoryOf(rank);
        std::vector<BFloat16> tokens = Get(memory, memory.hidden.data(), memory.hidden.size());
        std::reverse(tokens.begin(), tokens.end());
        Put(memory, memory.hidden.data(), tokens);
        readers_[rank]->SetTokens(which, tokens);
        ExpectOk(rank, LocalDispatchWithPlan{kPlan, CountOf(rank), true});
        wanted_[rank].push_back(InShard(rank).rows.substr(0, bytes_[rank]));
      });
    }
  }
  int32_t CountOf(int32_t rank) const {
    return static_cast<int32_t>(layer_.Inputs(rank)[0].header.shape(0));
  }

  std::vector<size_t> bytes_;                          // [R] of the rows that the plan uses
  std::vector<std::unique_ptr<SlotReaders>> readers_;  // [R]
  std::vector<std::vector<std::string>> wanted_;       // [R, 2] by the step's parity
};

// One thread gives all ranks their step before the next one: streams of a process share queues for
// copies, and what a queue has first must need nothing that comes behind it.
TEST_P(SlotReadersTest, StepsRunBehindEachOtherWithoutAWaitOfTheHost) {
  if (IsRemote() || !HasStreams()) GTEST_SKIP() << "no stream reads its memory";
  Prepare();
  std::vector<LocalSlot> slots(kRanks);
  OnEveryRank([&](int32_t rank) {
    slots[rank] = ExpectOk(rank, LocalDispatchWithPlan{kPlan, CountOf(rank), true, kAnySlot}).slot;
    ExpectOk(rank, LocalReleaseSlot{slots[rank]});
  });
  std::vector<std::vector<uint64_t>> commands(kRanks);
  std::vector<absl::optional<uint64_t>> last(kRanks);
  for (int step = 0; step < SlotReaders::kSteps; ++step) {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      LocalSlot& slot = slots[rank];
      slot = {(slot.index + 1) % kSlots, slot.identity + 1};
      const auto dispatched = readers_[rank]->Dispatch(
          step, last[rank], LocalDispatchWithPlan{kPlan, CountOf(rank), true, slot.index});
      ASSERT_TRUE(dispatched.ok()) << dispatched.status();
      last[rank] = *dispatched;
    }
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      SlotReaders& readers = *readers_[rank];
      CUstream_st* const stream = readers.stream(slots[rank].index);
      ASSERT_TRUE(clients_[rank]->MakeWait(stream, *last[rank]).ok());
      ASSERT_TRUE(readers.Read(slots[rank].index).ok());
      const auto released = clients_[rank]->ReleaseSlotBehind(stream, slots[rank]);
      ASSERT_TRUE(released.ok()) << released.status();
      ASSERT_TRUE(readers.Keep(step, slots[rank].index).ok());
      commands[rank].insert(commands[rank].end(), {*last[rank], *released});
    }
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    for (const uint64_t command : commands[rank]) ExpectEnds(rank, command);
    readers_[rank]->ExpectSeen(wanted_[rank]);
  }
  readers_.clear();
  ExpectAllGoesOn();
}

TEST_P(SlotReadersTest, ReadersInGraphsSayWithEveryLaunchThatTheyAreThrough) {
  if (IsRemote() || !HasStreams()) GTEST_SKIP() << "no stream reads its memory";
  Prepare();
  std::vector<std::vector<std::unique_ptr<CapturedGraph>>> graphs(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    SlotReaders& readers = *readers_[rank];
    EXPECT_EQ(clients_[rank]->CaptureSlotRead(readers.stream(0), 0).code(),
              absl::StatusCode::kFailedPrecondition)
        << "it would register memory in the middle of a capture";
    ASSERT_TRUE(clients_[rank]->MakeWait(readers.stream(0), 0).ok());
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      auto graph = CapturedGraph::Capture(readers.device(), readers.stream(slot), [&] {
        const absl::Status status = readers.Read(slot);
        return status.ok() ? clients_[rank]->CaptureSlotRead(readers.stream(slot), slot) : status;
      });
      ASSERT_TRUE(graph.ok()) << graph.status();
      graphs[rank].push_back(*std::move(graph));
    }
  }
  OnEveryRank([&](int32_t rank) {
    SlotReaders& readers = *readers_[rank];
    const LocalDispatchWithPlan dispatch{kPlan, CountOf(rank), true, kAnySlot};
    for (int step = 0; step < SlotReaders::kSteps; ++step) {
      const auto dispatched = readers.Dispatch(step, absl::nullopt, dispatch);
      ASSERT_TRUE(dispatched.ok()) << dispatched.status();
      const auto done = clients_[rank]->Wait(*dispatched, kLong);
      ASSERT_TRUE(done.ok()) << done.status();
      ASSERT_TRUE(done->status.ok()) << done->status;
      const LocalSlot slot = done->slot;
      ASSERT_TRUE(graphs[rank][slot.index]->Launch(readers.stream(slot.index)).ok());
      ExpectOk(rank, LocalReleaseSlot{slot, LocalRing::kDispatchOutput, SlotRead::kByGraph});
      ASSERT_TRUE(readers.Keep(step, slot.index).ok());
    }
    readers.ExpectSeen(wanted_[rank]);
  });
  graphs.clear();
  readers_.clear();
  ExpectAllGoesOn();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, RingsStreamTest, ::testing::ValuesIn(EveryWay()), NameOfWay);
INSTANTIATE_TEST_SUITE_P(EveryWay, SlotReadersTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
