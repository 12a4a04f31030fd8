// Rings of a data path that queues: what an operation that is found to have failed later had done
// to them, and what was queued behind it, is undone.
#include "kernels/rank/path_rings.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr int32_t kSlots = 2;

class Plan final : public PlanHandle {
 public:
  explicit Plan(Sequence sequence) : sequence_(sequence) {}
  ObjectTag tag() const override { return {BufferId(3), Generation(7), sequence_}; }

 private:
  const Sequence sequence_;
};

// Takes every operation and runs none.
class QueueingPath final : public DataPath {
 public:
  explicit QueueingPath(RankShape& shape) : shape_(shape) {}

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput&,
                                   const DispatchOutput&) override {
    ++queued;
    shape_.live.rows = sequence;
    return std::make_shared<Plan>(sequence);
  }
  absl::Status DispatchWithPlan(Sequence, const PlanPtr&, const DispatchInput&,
                                const DispatchOutput&) override {
    return Queued();
  }
  absl::Status PrefetchWeights(Sequence, const PlanPtr&, const ExpertWeights&) override {
    return Queued();
  }
  absl::Status RunExperts(const PlanPtr&, const ExpertWeights&, const RunExpertsInput&) override {
    return Queued();
  }
  absl::Status Combine(Sequence, const PlanPtr&, const CombineInput&,
                       const CombineOutput&) override {
    return Queued();
  }
  absl::Status ReduceGradients(Sequence, const PlanPtr&, const ExpertGradients&) override {
    return Queued();
  }
  absl::Status Barrier(Sequence) override { return Queued(); }
  absl::Status ProbeCopy(CopyProbe, int64_t) override { return Queued(); }
  absl::Status Decline(Sequence) override { return Queued(); }
  bool queues() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  void Abort(int32_t, const std::string&) override {}
  void RequestCancel(bool) override {}
  absl::optional<ErrorRecord> last_error() const override { return absl::nullopt; }
  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr&) const override { return PlanTensors(); }
  BFloat16* rows() const override { return nullptr; }
  float* row_weights() const override { return nullptr; }

  uint32_t queued = 0;

 private:
  absl::Status Queued() {
    ++queued;
    return absl::OkStatus();
  }

  RankShape& shape_;
};

class Side final : public RingSide {
 public:
  Side(RankShape& shape, const QueueingPath& path) : shape_(shape), path_(path) {}
  void UseSlot(int32_t slot) override { shape_.UseSlot(slot); }
  absl::Status FreeInOrder(int32_t) override { return absl::OkStatus(); }
  absl::Status FreeOnStream(int32_t, CUstream_st*) override { return absl::OkStatus(); }
  uint64_t* WordOf(int32_t slot) const override { return &words_[slot]; }
  BFloat16* ExpertRows(int32_t slot) const override { return &rows_[slot]; }
  void ForgetError() override { ++forgotten; }
  uint32_t last_place() const override { return path_.queued - 1; }

  int forgotten = 0;

 private:
  RankShape& shape_;
  const QueueingPath& path_;
  mutable uint64_t words_[kSlots] = {1, 1};
  mutable BFloat16 rows_[kSlots];
};

class PathRingsTest : public ::testing::Test {
 protected:
  PathRingsTest() : side_(shape_, path_) {
    shape_.buffer = BufferId(3);
    shape_.generation = Generation(7);
    shape_.shards.resize(1);
    shape_.slot_shards.assign(kSlots, std::vector<ShardView>(1));
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      shape_.slot_shards[slot][0].rows = &slot_rows_[slot];
    }
    shape_.slot_live.resize(kSlots);
    rings_.emplace(RingOptions{.dispatch_slots = kSlots, .expert_slots = kSlots}, path_, shape_,
                   side_);
  }

  SlotDispatched Dispatch(uint64_t sequence) {
    auto made = rings_->Dispatch(Sequence(sequence), {}, {});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : SlotDispatched();
  }
  RingSlot RunExperts(const SlotDispatched& of) {
    const auto output = rings_->RunExperts(of.slot, of.plan, {}, {});
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *output : RingSlot();
  }
  // Of four operations in places from the first on: two dispatches, the experts of the first, and a
  // dispatch into the slot that these have released.
  void Run() {
    first_ = Dispatch(1);
    second_ = Dispatch(2);
    output_ = RunExperts(first_);
    third_ = Dispatch(3);
    EXPECT_EQ(third_.slot.index, first_.slot.index);
  }

  RankShape shape_;
  BFloat16 slot_rows_[kSlots];
  QueueingPath path_{shape_};
  Side side_;
  absl::optional<PathRings> rings_;
  SlotDispatched first_, second_, third_;
  RingSlot output_;
};

TEST_F(PathRingsTest, ASlotTakenBehindAFailureIsUndoneWithIt) {
  first_ = Dispatch(1);
  const auto taken = rings_->AcquireExpertOutput(first_.plan);
  ASSERT_TRUE(taken.ok()) << taken.status();
  rings_->Ended(0);
  rings_->UndoRest();
  EXPECT_EQ(rings_->Probe(*taken), SlotState::kOver);
  EXPECT_EQ(rings_->next(RingKind::kExpertOutput), taken->index);
  EXPECT_EQ(rings_->acquired(RingKind::kExpertOutput), 0);
}

// What the data path tells of the last operation is not of the one before it.
TEST_F(PathRingsTest, ARefusalHasNoErrorOfAnOperationBefore) {
  const RingSlot none;
  const auto expect_forgets = [&](const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(std::exchange(side_.forgotten, 0), 1) << status;
  };
  expect_forgets(rings_->Release(none));
  expect_forgets(rings_->ReleaseOnStream(none, nullptr));
  expect_forgets(rings_->ReleaseByWord(none).status());
  expect_forgets(rings_->RunExperts(none, nullptr, {}, {}).status());
  expect_forgets(rings_->Combine(Sequence(1), nullptr, none, nullptr, {}));
  expect_forgets(rings_->AcquireExpertOutput(nullptr).status());
  for (uint64_t sequence = 1; sequence <= kSlots; ++sequence) Dispatch(sequence);
  side_.forgotten = 0;
  expect_forgets(rings_->Dispatch(Sequence(3), {}, {}).status());
  expect_forgets(rings_->DispatchWithPlan(Sequence(3), nullptr, {}).status());
}

TEST_F(PathRingsTest, WhatIsBehindAFailureIsUndone) {
  Run();
  rings_->Ended(1);
  rings_->UndoRest();
  EXPECT_EQ(rings_->Probe(first_.slot), SlotState::kAcquired);
  EXPECT_EQ(rings_->Probe(second_.slot), SlotState::kOver);
  EXPECT_EQ(rings_->Probe(output_), SlotState::kOver);
  EXPECT_EQ(rings_->Probe(third_.slot), SlotState::kOver);
  EXPECT_EQ(rings_->acquired(RingKind::kExpertOutput), 0);
  EXPECT_EQ(shape_.slot_live[0].rows, Sequence(1)) << "its rows are there as before";
  // They go on as if the operations had not been called.
  EXPECT_EQ(Dispatch(4).slot.index, 1);
  EXPECT_EQ(RunExperts(first_).index, 0);
}

TEST_F(PathRingsTest, WhatHasEndedStays) {
  Run();
  rings_->Ended(4);
  rings_->UndoRest();
  EXPECT_EQ(rings_->Probe(first_.slot), SlotState::kOver);
  EXPECT_EQ(rings_->Probe(second_.slot), SlotState::kAcquired);
  EXPECT_EQ(rings_->Probe(output_), SlotState::kAcquired);
  EXPECT_EQ(rings_->Probe(third_.slot), SlotState::kAcquired);
}

// The count of places begins anew at 2^32.
TEST_F(PathRingsTest, PlacesAreComparedRoundTheEndOfTheirCount) {
  path_.queued = UINT32_MAX - 1;
  Run();
  rings_->Ended(0);  // the dispatches
  rings_->UndoRest();
  EXPECT_EQ(rings_->Probe(first_.slot), SlotState::kAcquired);
  EXPECT_EQ(rings_->Probe(second_.slot), SlotState::kAcquired);
  EXPECT_EQ(rings_->Probe(output_), SlotState::kOver);
  EXPECT_EQ(rings_->Probe(third_.slot), SlotState::kOver);
}

}  // namespace
}  // namespace perigee
