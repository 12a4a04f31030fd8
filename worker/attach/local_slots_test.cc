// Output slots by commands of a local client: what they take and release, every way in which a name
// is refused, and what becomes of them behind a failure.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/executor_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LocalPlanId kPlan(9);
constexpr LocalSlot kNone;

class LocalSlotsTest : public LocalExecutorTest {
 protected:
  LocalSlot Take(const LocalOperation& operation) {
    const LocalCompletion done = Do(operation);
    EXPECT_TRUE(done.status.ok()) << done.status;
    return done.slot;
  }
  LocalSlot Dispatch(int32_t slot = kAnySlot) { return Take(LocalDispatch{kPlan, 3, true, slot}); }
  void ExpectRefused(const LocalOperation& operation, const std::string& reason,
                     const std::string& text) {
    const LocalCompletion done = Do(operation);
    EXPECT_EQ(done.reason, reason) << done.status;
    EXPECT_THAT(std::string(done.status.message()), HasSubstr(text));
    EXPECT_EQ(done.slot, kNone);
  }
  int32_t acquired(RingKind ring) { return path_->rings()->acquired(ring); }
  bool IsFree(const LocalSlot& slot) { return path_->fake_rings().IsFree(slot.index); }
  void MarkRead(const LocalSlot& slot, SlotRead read) {
    if (read == SlotRead::kByGraph) {
      ReplayedWord(page_, slot.index) = 1;
    } else {
      ReadWord(page_, /*word=*/0) = slot.identity;
    }
  }
  LocalRunExperts Experts(const LocalSlot& slot, bool output_slot) {
    return {kPlan, 0, 1, true, slot, output_slot};
  }
  LocalReleaseSlot Release(const LocalSlot& slot, SlotRead read = SlotRead::kOver) {
    return {slot, LocalRing::kDispatchOutput, read};
  }
};

TEST_F(LocalSlotsTest, ALayerRunsFromSlotToSlot) {
  const LocalSlot first = Dispatch();
  const LocalSlot second = Take(LocalDispatchWithPlan{kPlan, 2, false, 1});
  EXPECT_EQ(first, (LocalSlot{0, 5}));
  EXPECT_EQ(second, (LocalSlot{1, 6}));
  EXPECT_EQ(*arena_.plan.sequence, 5u) << "the plan made is the client's to read";
  const LocalSlot output = Take(Experts(first, true));
  EXPECT_NE(output.identity, 0u);
  EXPECT_EQ(acquired(RingKind::kDispatchOutput), 1);
  ExpectOk(LocalCombine{.plan = kPlan, .slot = output});
  EXPECT_EQ(acquired(RingKind::kExpertOutput), 0);
  EXPECT_EQ(Take(Experts(second, false)), kNone);
  EXPECT_EQ(path_->last_run_experts().output, path_->rows());
  EXPECT_EQ(acquired(RingKind::kDispatchOutput), 0);
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "dispatch_with_plan 6", "run_experts 0",
                                          "combine 7", "run_experts 0"));
}

TEST_F(LocalSlotsTest, RowsOfTheClientsOwnNeedNoDispatchIntoTheShard) {
  ExpectOk(LocalRunExperts{Experts(Dispatch(), true)});
  ExpectRefused(LocalCombine{.plan = kPlan}, "STALE_OBJECT", "rows of plan");
  ExpectOk(LocalCombine{.plan = kPlan, .own_rows = true});
  EXPECT_EQ(path_->last_combine().rows, path_->rows());
}

TEST_F(LocalSlotsTest, EveryNameThatIsNoneIsRefused) {
  const LocalSlot first = Dispatch();
  ExpectRefused(LocalDispatch{kPlan, 1, false, 0}, "STALE_OBJECT",
                "dispatch-output slot 0 is wanted, expected 1, the next in turn");
  const LocalSlot second = Dispatch();
  ExpectRefused(LocalDispatch{kPlan, 1, false, kAnySlot}, "SLOTS_IN_USE", "needs 3 or more");
  for (const int32_t index : {-1, 2, INT16_MAX, INT16_MIN}) {
    ExpectRefused(Release({index, first.identity}), "STALE_OBJECT", "expected one of the 2 of");
  }
  for (const uint64_t identity : {uint64_t{0}, first.identity + 1, UINT64_MAX}) {
    ExpectRefused(Release({0, identity}), "STALE_OBJECT", "which is over: identity 5 has it");
    ExpectRefused(Experts({0, identity}, false), "STALE_OBJECT", "which is over");
  }
  ExpectRefused(LocalReleaseSlot{first, LocalRing::kExpertOutput}, "STALE_OBJECT", "which is over");
  ExpectRefused(LocalCombine{.plan = kPlan, .slot = first}, "STALE_OBJECT", "which is over");
  ExpectOk(Release(first));
  for (const SlotRead read : {SlotRead::kOver, SlotRead::kByStream, SlotRead::kByGraph}) {
    ExpectRefused(Release(first, read), "STALE_OBJECT", "is released already");
  }
  ExpectRefused(Experts(first, true), "STALE_OBJECT", "is released already");
  const LocalSlot output = Take(Experts(second, true));
  ExpectRefused(Experts(Dispatch(), true), "SLOTS_IN_USE", "needs 2 or more");
  ExpectOk(LocalReleaseSlot{output, LocalRing::kExpertOutput});
  EXPECT_EQ(acquired(RingKind::kExpertOutput), 0);
}

TEST_F(LocalSlotsTest, ASlotIsFreeWhenTheClientSaysSo) {
  for (const SlotRead read : {SlotRead::kByStream, SlotRead::kByGraph}) {
    const LocalSlot slot = Dispatch();
    path_->fake_rings().Clear(slot.index);
    ExpectOk(Release(slot, read));
    MarkRead({1 - slot.index, slot.identity + 1}, read);
    MarkRead(slot, read == SlotRead::kByStream ? SlotRead::kByGraph : SlotRead::kByStream);
    executor_->PassReads();
    EXPECT_FALSE(IsFree(slot)) << "of another, or said in another way";
    MarkRead(slot, read);
    ExpectOk(LocalEmpty{});
    EXPECT_TRUE(IsFree(slot)) << "whatever command comes";
    page_.replayed[0] = page_.replayed[1] = 0;
  }
}

// Graphs were launched, and their slots then released in every other way: before a mark is stored,
// behind it, and by the command that reads the slot.
TEST_F(LocalSlotsTest, AMarkLeftOverByAnEarlierHolderFreesNobodysSlot) {
  for (const bool queues : {false, true}) {
    if (queues) path_->set_queues();
    for (int way = 0; way < 4; ++way) {
      const LocalSlot left = Dispatch();
      const bool early = way % 2 == 0;
      if (early) MarkRead(left, SlotRead::kByGraph);
      if (way < 2) ExpectOk(Release(left));
      if (way == 2) ExpectOk(Experts(left, false));
      if (way == 3) ExpectOk(Release(left, SlotRead::kByStream));
      if (!early) MarkRead(left, SlotRead::kByGraph);
      if (way == 3) MarkRead(left, SlotRead::kByStream);
      ExpectOk(Release(Dispatch()));  // the turn of the other one
      const LocalSlot slot = Dispatch();
      ASSERT_EQ(slot.index, left.index);
      path_->fake_rings().Clear(slot.index);
      ExpectOk(Release(slot, SlotRead::kByGraph));
      executor_->PassReads();
      EXPECT_FALSE(IsFree(slot)) << "its graph has not run: " << queues << ", way " << way;
      MarkRead(slot, SlotRead::kByGraph);
      executor_->PassReads();
      EXPECT_TRUE(IsFree(slot)) << queues << ", way " << way;
      ExpectOk(Release(Dispatch()));
    }
  }
}

// The end of the dispatch and what it publishes: the release is there already, and not told apart.
TEST_F(LocalSlotsTest, ALeftOverMarkIsDroppedBeforeAnEarlyReleaseLooksAtIt) {
  const LocalSlot left = Dispatch();
  MarkRead(left, SlotRead::kByGraph);
  ExpectOk(Release(left));
  ExpectOk(Release(Dispatch()));
  path_->set_queues();
  path_->set_running(0);
  Begin(LocalBarrier{});
  Begin(LocalDispatch{kPlan, 1, false, left.index});
  const LocalSlot slot{left.index, executor_->last_sequence().value};
  Begin(Release(slot, SlotRead::kByGraph));
  path_->fake_rings().Clear(slot.index);
  path_->set_running(2);
  EXPECT_EQ(NextReason(), "OK");  // the dispatch has ended as well, and is not told yet
  executor_->PassReads();
  EXPECT_FALSE(IsFree(slot));
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(NextReason(), "OK");
  MarkRead(slot, SlotRead::kByGraph);
  executor_->PassReads();
  EXPECT_TRUE(IsFree(slot));
}

// It has given up waiting for a reader, whose mark comes then, or had come.
TEST_F(LocalSlotsTest, ADispatchThatFailsDropsNoMark) {
  const LocalSlot read = Dispatch();
  path_->fake_rings().Clear(read.index);
  ExpectOk(Release(read, SlotRead::kByGraph));
  ExpectOk(Release(Dispatch()));
  path_->set_queues();
  const Sequence next = executor_->last_sequence().Next();
  Fail("dispatch", path_->LeaveEarly(AbortReason::kDeclined, Operation::kDispatch, next));
  Begin(LocalDispatch{kPlan, 1, false, read.index});
  MarkRead(read, SlotRead::kByGraph);
  EXPECT_EQ(NextReason(), "DECLINED");
  executor_->PassReads();
  EXPECT_TRUE(IsFree(read));
}

TEST_F(LocalSlotsTest, ReadersOfAClientThatHasGoneAreNotWaitedFor) {
  const LocalSlot read = Dispatch();
  path_->fake_rings().Clear(read.index);
  ExpectOk(Release(read, SlotRead::kByStream));
  path_->set_queues();
  path_->set_running(0);
  Begin(LocalDispatch{kPlan, 1, false, kAnySlot});
  const LocalSlot taken{1, 6};
  Begin(Release(taken, SlotRead::kByGraph));
  path_->fake_rings().Clear(taken.index);
  executor_->PassReads();
  EXPECT_FALSE(IsFree(read)) << "its reader goes on";
  executor_->EndReads();
  executor_->PassReads();
  EXPECT_TRUE(IsFree(read));
  EXPECT_FALSE(IsFree(taken)) << "the entry of its dispatch would clear the mark";
}

TEST_F(LocalSlotsTest, AMarkThatComesEarlyIsPassedBehindTheDispatch) {
  path_->set_queues();
  path_->set_running(0);
  Begin(LocalDispatch{kPlan, 1, false, kAnySlot});
  const LocalSlot slot{0, 5};
  Begin(Release(slot, SlotRead::kByStream));
  MarkRead(slot, SlotRead::kByStream);
  path_->fake_rings().Clear(slot.index);
  executor_->PassReads();
  EXPECT_FALSE(IsFree(slot)) << "the dispatch would clear it";
  path_->set_running(1);
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(NextReason(), "OK");
  executor_->PassReads();
  EXPECT_TRUE(IsFree(slot));
}

// Of a dispatch that fails on the device, and of what is behind it.
TEST_F(LocalSlotsTest, WhatFailsHasTakenAndReleasedNothing) {
  const LocalSlot held = Dispatch();
  path_->set_queues();
  path_->set_running(0);
  Fail("dispatch", path_->LeaveEarly(AbortReason::kDeclined, Operation::kDispatch, Sequence(6)));
  Begin(LocalDispatch{kPlan, 1, false, kAnySlot});  // into slot 1, fails
  const LocalSlot lost{1, 6};
  Begin(Release(held));                                     // behind it: undone
  Begin(Release(lost, SlotRead::kByStream));                // of it: undone
  Begin(LocalDispatchWithPlan{kPlan, 1, false, kAnySlot});  // behind it
  Begin(Release({0, 7}, SlotRead::kByStream));
  path_->set_running(SIZE_MAX);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(NextReason(), "DECLINED") << i;
  EXPECT_TRUE(executor_->idle());
  EXPECT_EQ(acquired(RingKind::kDispatchOutput), 1) << "as it was before";
  EXPECT_EQ(path_->rings()->next(RingKind::kDispatchOutput), 1);
  path_->set_behaviour(nullptr);
  // A mark of one that never had the slot frees nobody's.
  Begin(Release(held));
  EXPECT_EQ(NextReason(), "OK");
  path_->fake_rings().Clear(lost.index);
  MarkRead(lost, SlotRead::kByStream);
  executor_->PassReads();
  EXPECT_FALSE(IsFree(lost));
}

TEST_F(LocalSlotsTest, AReleaseByAStreamOutlivesTheFailureOfAnother) {
  const LocalSlot held = Dispatch();
  path_->fake_rings().Clear(held.index);
  path_->set_queues();
  Fail("dispatch", path_->LeaveEarly(AbortReason::kDeclined, Operation::kDispatch, Sequence(6)));
  Begin(LocalDispatch{kPlan, 1, false, kAnySlot});
  Begin(Release(held, SlotRead::kByStream));
  EXPECT_EQ(NextReason(), "DECLINED");
  EXPECT_EQ(NextReason(), "OK");
  EXPECT_EQ(acquired(RingKind::kDispatchOutput), 0);
  MarkRead(held, SlotRead::kByStream);
  executor_->PassReads();
  EXPECT_TRUE(IsFree(held));
}

TEST_F(LocalSlotsTest, AClientThatGoesLeavesAllSlotsFree) {
  const LocalSlot unread = Dispatch();
  const LocalSlot taken = Dispatch();
  for (const LocalSlot& slot : {unread, taken}) path_->fake_rings().Clear(slot.index);
  ExpectOk(Release(unread, SlotRead::kByStream));
  executor_->Clear();
  EXPECT_EQ(acquired(RingKind::kDispatchOutput), 0);
  EXPECT_TRUE(IsFree(unread)) << "nobody reads any more";
  EXPECT_TRUE(IsFree(taken));
}

}  // namespace
}  // namespace perigee
