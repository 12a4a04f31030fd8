// Readers of dispatch-output slots in streams and CUDA graphs of their own: eager while they warm
// up, then captured once and replayed. Backend cuda only.
//
// Each slot has a stream of its own, and nothing but dispatches waits for one before the end: what
// the readers have seen is kept for each step.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/device/caller_stream.h"
#include "kernels/device/captured_graph.h"
#include "kernels/device/stream.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rings_fixture.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

constexpr int32_t kSlots = 2;
constexpr int kSteps = 12 * kSlots;
// Of the rows of a slot, one over the other, so that a dispatch that did not wait would be seen.
constexpr int kReads = 600;

class RingsCaptureTest : public RingsTest {
 protected:
  // Of one rank.
  struct Reader {
    std::vector<std::unique_ptr<Stream>> streams;        // [slots]
    std::vector<DeviceArray<BFloat16>> read;             // [slots] what the last reader of each saw
    std::vector<DeviceArray<BFloat16>> seen;             // [kSteps] the same, kept
    std::vector<std::unique_ptr<CapturedGraph>> graphs;  // [slots]
    std::vector<BFloat16*> rows;                         // [slots]
  };

  void SetUp() override {
    if (backend(0).info().name != "cuda") GTEST_SKIP() << "has no streams";
    Start({.dispatch_slots = kSlots});
    for (int salt = 0; salt < 3; ++salt) {
      inputs_of_.push_back(inputs_);
      for (RankInput& rank : inputs_of_.back()) {
        rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
      }
      wanted_.push_back(group_->Dispatch(inputs_of_.back(), Copy::kInPlace));
    }
    const size_t elements =
        static_cast<size_t>(kGeometry.logical_rows()) * static_cast<size_t>(group_->hidden());
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      Reader& reader = readers_[rank];
      reader.rows.resize(kSlots);
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        auto stream = Stream::Create(device(rank));
        ASSERT_TRUE(stream.ok()) << stream.status();
        reader.streams.push_back(*std::move(stream));
        reader.read.emplace_back(backend(rank), elements);
      }
      for (int step = 0; step < kSteps; ++step) reader.seen.emplace_back(backend(rank), elements);
    }
  }

  static int device(int32_t rank) { return rank % GetParam().devices; }
  CUstream_st* stream(int32_t rank, int32_t slot) { return readers_[rank].streams[slot]->get(); }
  size_t slot_bytes() const {
    return static_cast<size_t>(kGeometry.logical_rows()) * group_->hidden() * sizeof(BFloat16);
  }
  // Into the reader's stream.
  absl::Status ReadSlot(int32_t rank, int32_t slot) {
    const Reader& reader = readers_[rank];
    absl::Status status;
    for (int i = 0; i < kReads && status.ok(); ++i) {
      status = CopyOnStream(device(rank), stream(rank, slot), reader.read[slot].data(),
                            reader.rows[slot], slot_bytes());
    }
    return status;
  }
  absl::Status KeepRead(int32_t rank, int step) {
    const Reader& reader = readers_[rank];
    return CopyOnStream(device(rank), stream(rank, step % kSlots), reader.seen[step].data(),
                        reader.read[step % kSlots].data(), slot_bytes());
  }
  // Every reader has seen the rows of its step.
  void ExpectRead(int step) {
    const auto& wanted = wanted_[step % wanted_.size()];
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<BFloat16> read = readers_[rank].seen[step].Get();
      const size_t used =
          static_cast<size_t>(wanted[rank].tensors.cu_seqlens.back()) * group_->hidden();
      EXPECT_TRUE(std::equal(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(used),
                             wanted[rank].rows.begin()))
          << "step " << step << ", rank " << rank;
    }
  }
  // One dispatch of all ranks into the next slot, and then its readers, which go on meanwhile.
  template <typename Read>
  void Step(int step, const Read& read) {
    inputs_ = inputs_of_[step % inputs_of_.size()];
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) -> absl::Status {
      const auto made = DispatchOn(rank, sequence);
      if (!made.ok()) return made.status();
      EXPECT_EQ(made->slot.index, step % kSlots);
      const auto memory = rings(rank).MemoryOf(made->slot);
      if (!memory.ok()) return memory.status();
      readers_[rank].rows[made->slot.index] = memory->rows;
      slots_[rank] = made->slot;
      return absl::OkStatus();
    }));
    ExpectOk(group_->OnAll([&](int32_t rank) {
      const absl::Status status = read(rank, slots_[rank]);
      return status.ok() ? KeepRead(rank, step) : status;
    }));
  }

  std::vector<std::vector<RankInput>> inputs_of_;
  std::vector<std::vector<DispatchResult>> wanted_;
  Reader readers_[kRanks];
  RingSlot slots_[kRanks];
};

TEST_P(RingsCaptureTest, ReadersReleaseEagerlyThenFromGraphs) {
  int step = 0;
  for (; step < 2 * kSlots; ++step) {
    Step(step, [&](int32_t rank, const RingSlot& slot) {
      const absl::Status status = ReadSlot(rank, slot.index);
      return status.ok() ? rings(rank).ReleaseOnStream(slot, stream(rank, slot.index)) : status;
    });
  }
  ExpectOk(group_->OnAll([&](int32_t rank) -> absl::Status {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      auto graph = CapturedGraph::Capture(device(rank), stream(rank, slot), [&] {
        const absl::Status status = ReadSlot(rank, slot);
        return status.ok() ? rings(rank).CaptureRelease(slot, stream(rank, slot)) : status;
      });
      if (!graph.ok()) return graph.status();
      readers_[rank].graphs.push_back(*std::move(graph));
    }
    return absl::OkStatus();
  }));
  // Capturing has released nothing and run nothing.
  EXPECT_EQ(rings(0).acquired(RingKind::kDispatchOutput), 0);
  for (; step < kSteps && !HasFailure(); ++step) {
    Step(step, [&](int32_t rank, const RingSlot& slot) {
      const absl::Status status = rings(rank).ReleaseByWord(slot).status();
      return status.ok() ? readers_[rank].graphs[slot.index]->Launch(stream(rank, slot.index))
                         : status;
    });
  }
  for (Reader& reader : readers_) {
    for (const auto& stream : reader.streams) EXPECT_TRUE(stream->Synchronize().ok());
  }
  kept_.Clear();
  for (int past = 0; past < step; ++past) ExpectRead(past);
}

INSTANTIATE_TEST_SUITE_P(Backends, RingsCaptureTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
