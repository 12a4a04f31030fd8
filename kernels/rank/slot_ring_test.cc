#include "kernels/rank/slot_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr RingId kId = {RingKind::kDispatchOutput, BufferId(3), Generation(7), RankId(1)};

class SlotRingTest : public testing::Test {
 protected:
  SlotRing Ring(int32_t slots) {
    return SlotRing(kId, slots, [this](int32_t slot) { return pending_.count(slot) == 0; });
  }
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                            const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  std::set<int32_t> pending_;  // slots whose last read goes on
};

TEST_F(SlotRingTest, SlotsAreTakenInTurnWithAFreshIdentityEachTime) {
  SlotRing ring = Ring(3);
  for (uint64_t identity = 1; identity <= 10; ++identity) {
    const auto slot = ring.Acquire(identity * 5);
    ASSERT_TRUE(slot.ok()) << slot.status();
    EXPECT_EQ(slot->index, static_cast<int32_t>((identity - 1) % 3));
    EXPECT_EQ(slot->identity, identity * 5);
    EXPECT_EQ(slot->ring, kId);
    EXPECT_TRUE(ring.Check(*slot).ok());
    EXPECT_TRUE(ring.Release(*slot).ok());
  }
}

TEST_F(SlotRingTest, EachWrongUseHasItsOwnWords) {
  SlotRing ring = Ring(2);
  const RingSlot first = *ring.Acquire(4);
  const RingSlot second = *ring.Acquire(9);
  ExpectRefused(
      ring.Acquire(11).status(), absl::StatusCode::kResourceExhausted,
      "dispatch-output slot 0 is next and not released: identity 4 has it. The buffer has "
      "2 slots, what is called needs 3 or more");
  // Released out of order: the turn stays with the first.
  EXPECT_TRUE(ring.Release(second).ok());
  ExpectRefused(ring.Acquire(11).status(), absl::StatusCode::kResourceExhausted, "identity 4");
  ExpectRefused(ring.Release(second), absl::StatusCode::kInvalidArgument,
                "dispatch-output slot 1 of identity 9 is released already");
  EXPECT_TRUE(ring.Release(first).ok());
  const RingSlot third = *ring.Acquire(11);
  EXPECT_EQ(third.index, 0);
  ExpectRefused(ring.Release(first), absl::StatusCode::kInvalidArgument,
                "slot 0 carries identity 4, which is over: identity 11 has it");
  EXPECT_TRUE(ring.Release(third).ok());
  ExpectRefused(ring.Release(first), absl::StatusCode::kInvalidArgument, "over: nobody has it");
  const std::pair<const char*, RingId> foreign[] = {
      {"expert-output ring of rank 1, buffer 3, generation 7",
       {RingKind::kExpertOutput, BufferId(3), Generation(7), RankId(1)}},
      {"rank 0", {RingKind::kDispatchOutput, BufferId(3), Generation(7), RankId(0)}},
      {"buffer 2", {RingKind::kDispatchOutput, BufferId(2), Generation(7), RankId(1)}},
      {"generation 6", {RingKind::kDispatchOutput, BufferId(3), Generation(6), RankId(1)}},
  };
  for (const auto& [text, id] : foreign) {
    ExpectRefused(ring.Release({id, 0, 11}), absl::StatusCode::kInvalidArgument, text);
    EXPECT_EQ(ring.Probe({id, 0, 11}), SlotState::kForeign);
  }
  for (int32_t index : {-1, 2}) {
    ExpectRefused(ring.Release({kId, index, 11}), absl::StatusCode::kInvalidArgument,
                  "expected one of the 2 of the dispatch-output ring");
  }
  ExpectRefused(Ring(0).Acquire(1).status(), absl::StatusCode::kInvalidArgument,
                "the buffer has no dispatch-output slots");
}

TEST_F(SlotRingTest, AReleasedSlotIsTakenWhileItsLastReadGoesOn) {
  SlotRing ring = Ring(1);
  const RingSlot first = *ring.Acquire(1);
  EXPECT_EQ(ring.Probe(first), SlotState::kAcquired);
  pending_ = {0};
  EXPECT_TRUE(ring.Release(first).ok());
  EXPECT_EQ(ring.Probe(first), SlotState::kReleased);
  pending_ = {};
  EXPECT_EQ(ring.Probe(first), SlotState::kFree);
  pending_ = {0};
  EXPECT_TRUE(ring.Acquire(2).ok());
  EXPECT_EQ(ring.Probe(first), SlotState::kOver);
}

TEST_F(SlotRingTest, WhatIsUndoneHasNotHappened) {
  SlotRing ring = Ring(2);
  const RingSlot first = *ring.Acquire(1);
  EXPECT_TRUE(ring.Release(first).ok());
  const RingSlot second = *ring.Acquire(2);
  const RingSlot third = *ring.Acquire(3);  // in the first's place
  EXPECT_TRUE(ring.Release(second).ok());
  ring.UndoRelease(second);
  ring.UndoAcquire(third);
  EXPECT_EQ(ring.Probe(third), SlotState::kOver);
  EXPECT_TRUE(ring.Check(second).ok());
  EXPECT_EQ(ring.Acquire(4)->index, 0);
  // Not the last one.
  ring.UndoAcquire(second);
  EXPECT_TRUE(ring.Check(second).ok());
}

// Queued one behind the other, and the first of them failed.
TEST_F(SlotRingTest, SeveralLivesOfASlotAreUndoneInReverse) {
  SlotRing ring = Ring(1);
  const RingSlot alive = *ring.Acquire(1);
  EXPECT_TRUE(ring.Release(alive).ok());
  const RingSlot second = *ring.Acquire(2);
  EXPECT_TRUE(ring.Release(second).ok());
  const RingSlot third = *ring.Acquire(3);
  ring.UndoAcquire(third);
  ring.UndoRelease(second);
  ring.UndoAcquire(second);
  ring.UndoRelease(alive);
  EXPECT_EQ(ring.Probe(alive), SlotState::kAcquired);
  EXPECT_TRUE(ring.Release(alive).ok());
  EXPECT_TRUE(ring.Acquire(4).ok());
}

// The obvious model: all that has been acquired, in order, and how far each is.
struct ModelUse {
  RingSlot slot;
  bool released = false;
};
struct Model {
  int32_t slots;
  std::deque<ModelUse> uses;

  const ModelUse* NowAt(int32_t index) const {
    for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
      if (use->slot.index == index) return &*use;
    }
    return nullptr;
  }
  int32_t next() const { return static_cast<int32_t>(uses.size()) % slots; }
  bool IsAlive(const RingSlot& slot) const {
    const ModelUse* now = slot.ring == kId ? NowAt(slot.index) : nullptr;
    return now != nullptr && now->slot == slot && !now->released;
  }
  int32_t acquired() const {
    return static_cast<int32_t>(std::count_if(
        uses.begin(), uses.end(), [&](const ModelUse& use) { return IsAlive(use.slot); }));
  }
};

class SlotRingModelTest : public SlotRingTest {
 protected:
  // Of the last few, sometimes of another buffer.
  RingSlot Any() {
    if (model_.uses.empty()) return {kId, 0, 1};
    const size_t back = random_() % std::min<size_t>(8, model_.uses.size());
    RingSlot slot = model_.uses[model_.uses.size() - 1 - back].slot;
    if (random_() % 16 == 0) slot.ring.buffer = BufferId(4);
    return slot;
  }
  void Acquire(SlotRing& ring) {
    const ModelUse* held = model_.NowAt(model_.next());
    const bool free = held == nullptr || held->released;
    identity_ += 1 + random_() % 3;
    const auto slot = ring.Acquire(identity_);
    ASSERT_EQ(slot.ok(), free) << slot.status();
    refused_ += free ? 0 : 1;
    if (!free) return;
    ASSERT_EQ(*slot, (RingSlot{kId, model_.next(), identity_}));
    model_.uses.push_back({*slot});
  }
  void Release(SlotRing& ring) {
    const RingSlot slot = Any();
    const bool wanted = model_.IsAlive(slot);
    ASSERT_EQ(ring.Release(slot).ok(), wanted);
    refused_ += wanted ? 0 : 1;
    for (ModelUse& use : model_.uses) use.released |= wanted && use.slot == slot;
    if (wanted && random_() % 2 == 0) pending_.insert(slot.index);
  }
  void UndoLast(SlotRing& ring) {
    if (model_.uses.empty()) return;
    const RingSlot last = model_.uses.back().slot;
    ring.UndoAcquire(last);
    model_.uses.pop_back();
    ASSERT_EQ(ring.Probe(last), SlotState::kOver);
  }
  void Step(SlotRing& ring) {
    const auto command = random_() % 6;
    if (command < 2) return Acquire(ring);
    if (command < 4) return Release(ring);
    if (command == 4) return UndoLast(ring);
    pending_.erase(static_cast<int32_t>(random_() % model_.slots));
  }

  std::mt19937_64 random_{TestSeed()};
  Model model_{};
  uint64_t identity_ = 0;
  int refused_ = 0;
};

TEST_F(SlotRingModelTest, RandomCommandsAgreeWithTheModel) {
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    model_ = {1 + static_cast<int32_t>(random_() % 5), {}};
    SlotRing ring = Ring(model_.slots);
    pending_ = {};
    for (int i = 0; i < 500 && !HasFailure(); ++i) {
      Step(ring);
      // Twice: probes change nothing.
      for (int twice = 0; twice < 2; ++twice) {
        const RingSlot slot = Any();
        ASSERT_EQ(ring.Probe(slot) == SlotState::kAcquired, model_.IsAlive(slot));
        ASSERT_EQ(ring.Check(slot).ok(), model_.IsAlive(slot));
      }
      ASSERT_EQ(ring.acquired(), model_.acquired());
    }
  }
  EXPECT_GT(refused_, 1000);
}

// Against rings of every size: the least on which nothing is refused.
TEST_F(SlotRingTest, TheDepthNeededIsTheLeastThatRefusesNothing) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    std::vector<RingStep> schedule;
    std::vector<int32_t> held;
    for (int32_t object = 0; object < 12;) {
      if (held.empty() || random() % 2 == 0) {
        schedule.push_back({true, object});
        held.push_back(object++);
      } else {
        const size_t at = random() % held.size();
        schedule.push_back({false, held[at]});
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const auto runs = [&](int32_t slots) {
      SlotRing ring = Ring(slots);
      std::map<int32_t, RingSlot> taken;
      for (const RingStep& step : schedule) {
        if (!step.acquires) {
          EXPECT_TRUE(ring.Release(taken[step.object]).ok());
          continue;
        }
        const auto slot = ring.Acquire(step.object + 1);
        if (!slot.ok()) return false;
        taken[step.object] = *slot;
      }
      return true;
    };
    int32_t least = 1;
    while (!runs(least)) ++least;
    ASSERT_EQ(RingDepthNeeded(schedule), least);
  }
  EXPECT_EQ(RingDepthNeeded({}), 0);
}

}  // namespace
}  // namespace perigee
