// What a slot of a ring lives for, on every backend: what is refused before anything is touched,
// and what operations that all ranks leave do to the rings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/direct_publication.h"
#include "tests/contract/rings_fixture.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class RingsLifetimesTest : public RingsTest {
 protected:
  absl::StatusOr<RingSlot> RunExperts(int32_t rank, const SlotResult& of, uint64_t version = 1,
                                      const SlotExperts& experts = {}) {
    return rings(rank).RunExperts(of.slot, of.dispatched.plan, store_->WeightsOf(rank, 0, version),
                                  experts);
  }
  void Prefetch(const std::vector<SlotResult>& results) {
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) {
      return group_->path(rank).PrefetchWeights(sequence, results[rank].dispatched.plan,
                                                store_->WeightsOf(rank, 0, 1));
    }));
  }
};

TEST_P(RingsLifetimesTest, EarlyReuseIsRefusedWithTheDepthThatIsNeeded) {
  Start({.dispatch_slots = 2});
  const auto first = Dispatch();
  const auto second = Dispatch();
  const Sequence next = group_->NextSequence();
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    ExpectRefused(
        DispatchOn(rank, next).status(), absl::StatusCode::kResourceExhausted,
        "slot 0 is next and not released: identity 1 has it. The buffer has 2 slots, what "
        "is called needs 3");
    EXPECT_FALSE(group_->path(rank).last_error().has_value());
  }
  ExpectOk(Release(first));
  // Nothing was touched: the same sequence, the same slot.
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const auto made = DispatchOn(rank, next);
    EXPECT_EQ(made.ok() ? made->slot.index : -1, 0);
    return made.status();
  }));
}

TEST_P(RingsLifetimesTest, WrongReleasesAreRefusedAndChangeNothing) {
  Start({.dispatch_slots = 2, .expert_slots = 1});
  const auto first = Dispatch();
  const RingSlot slot = first[0].slot;
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectRefused(rings(0).Release(first[1].slot), code, "ring of rank 1");
  RingSlot other = slot;
  other.ring.generation = Generation(6);
  ExpectRefused(rings(0).Release(other), code, "generation 6");
  other = slot;
  other.ring.kind = RingKind::kExpertOutput;
  ExpectRefused(rings(0).Release(other), code, "expert-output slot 0 carries identity 1");
  other = slot;
  other.identity += 5;
  ExpectRefused(rings(0).Release(other), code, "carries identity 6, which is over");
  EXPECT_EQ(rings(0).Probe(slot), SlotState::kAcquired);
  EXPECT_TRUE(rings(0).Release(slot).ok());
  ExpectRefused(rings(0).Release(slot), code, "is released already");
  ExpectRefused(rings(0).ReleaseByWord(slot).status(), code, "is released already");
  ExpectRefused(rings(0).MemoryOf(slot).status(), code, "is released already");
  ExpectRefused(RunExperts(0, first[0]).status(), code, "is released already");
  for (int32_t rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(rings(rank).Release(first[rank].slot).ok());
  (void)Dispatch();
  const auto third = Dispatch();  // where the first was
  ASSERT_EQ(third[0].slot.index, slot.index);
  ExpectRefused(rings(0).Release(slot), code,
                "carries identity 1, which is over: identity 3 has it");
  ExpectRefused(RunExperts(0, first[0]).status(), code, "which is over");
  EXPECT_EQ(rings(0).Probe(third[0].slot), SlotState::kAcquired);
}

// Whatever is asked, in whatever state: the ring goes on as if nobody had.
TEST_P(RingsLifetimesTest, ProbesChangeNothing) {
  Start({.dispatch_slots = 2, .expert_slots = 1});
  std::vector<RingSlot> seen = {RingSlot()};
  const auto probe_all = [&] {
    for (const RingSlot& slot : seen) {
      for (int32_t rank = 0; rank < kRanks; ++rank) {
        (void)rings(rank).Probe(slot);
        (void)rings(rank).MemoryOf(slot);
      }
    }
  };
  for (int i = 0; i < 5; ++i) {
    probe_all();
    const auto made = Dispatch();
    EXPECT_EQ(made[0].slot.index, i % 2);
    for (const SlotResult& result : made) seen.push_back(result.slot);
    probe_all();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(rings(rank).Probe(made[rank].slot), SlotState::kAcquired);
      EXPECT_EQ(rings(rank).Probe(made[(rank + 1) % kRanks].slot), SlotState::kForeign);
    }
    EXPECT_EQ(rings(0).acquired(RingKind::kDispatchOutput), 1);
    ExpectOk(Release(made));
    probe_all();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(rings(rank).Probe(made[rank].slot), SlotState::kFree);
    }
  }
  EXPECT_EQ(rings(0).Probe(seen[1]), SlotState::kOver);
}

// The consumer of a slot and of an expert output, and what they are for.
TEST_P(RingsLifetimesTest, ConsumersReleaseAndTakeNoOtherSlots) {
  Start({.dispatch_slots = 2, .expert_slots = 1});
  const auto made = Dispatch();
  const auto other = Dispatch();
  Prefetch(made);
  DataPath& path = group_->path(0);
  const auto code = absl::StatusCode::kInvalidArgument;
  const auto memory = rings(0).MemoryOf(made[0].slot);
  ExpectRefused(RunExperts(0, made[0], 1, {.output = memory->rows}).status(), code,
                "is the slot that they read");
  ExpectRefused(RunExperts(0, made[0], 1, {.output = path.rows() + 8}).status(), code,
                "in the shard");
  // By another plan than the rows lie by.
  SlotResult mixed = made[0];
  mixed.dispatched.plan = other[0].dispatched.plan;
  ExpectRefused(RunExperts(0, mixed).status(), code, "expected the plan of sequence 2");
  EXPECT_EQ(rings(0).acquired(RingKind::kExpertOutput), 0);
  const auto kept = RunExperts(0, made[0], 1, {.keeps_rows = true});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(rings(0).Probe(made[0].slot), SlotState::kAcquired);
  ExpectRefused(RunExperts(0, made[0]).status(), absl::StatusCode::kResourceExhausted,
                "expert-output slot 0 is next and not released");
  EXPECT_TRUE(rings(0).Release(*kept).ok());
  std::vector<RingSlot> outputs(kRanks);
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const auto output = RunExperts(rank, made[rank]);
    if (output.ok()) outputs[rank] = *output;
    return output.status();
  }));
  EXPECT_EQ(rings(0).Probe(made[0].slot), SlotState::kFree);
  const Sequence sequence = group_->NextSequence();
  const CombineOutput to = {kept_.Add(backend(0), inputs_[0].hidden), nullptr};
  ExpectRefused(rings(0).Combine(sequence, made[0].dispatched.plan, other[0].slot, nullptr, to),
                code, "expected an expert-output slot");
  ExpectRefused(rings(0).Combine(sequence, other[0].dispatched.plan, outputs[0], nullptr, to), code,
                "holds rows of the plan of sequence 1, expected the plan of sequence 2");
  ExpectOk(group_->OnAll([&](int32_t rank) {
    BFloat16* const sums = kept_.Add(backend(rank), inputs_[rank].hidden);
    return rings(rank).Combine(sequence, made[rank].dispatched.plan, outputs[rank], nullptr,
                               {sums, nullptr});
  }));
  EXPECT_EQ(rings(0).Probe(outputs[0]), SlotState::kFree);
}

// One rank has not released: it declines, and all stay in step.
TEST_P(RingsLifetimesTest, ARankWithoutASlotDeclinesAndTheOthersGiveTheirsBack) {
  Start({.dispatch_slots = 1});
  const auto made = Dispatch();
  for (int32_t rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(rings(rank).Release(made[rank].slot).ok());
  const Sequence sequence = group_->NextSequence();
  const auto statuses = group_->OnAll([&](int32_t rank) {
    const absl::Status status = DispatchOn(rank, sequence).status();
    if (rank != 0) return status;
    ExpectRefused(status, absl::StatusCode::kResourceExhausted, "not released");
    return group_->path(0).Decline(sequence);
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    ExpectRefused(statuses[rank], absl::StatusCode::kFailedPrecondition, "rank 0 declined");
    EXPECT_EQ(rings(rank).acquired(RingKind::kDispatchOutput), 0);
  }
  ASSERT_TRUE(rings(0).Release(made[0].slot).ok());
  ExpectNextTakes(0);
}

TEST_P(RingsLifetimesTest, RanksThatMeanDifferentPlacesDisagree) {
  Start({.dispatch_slots = 2});
  const Sequence sequence = group_->NextSequence();
  const auto statuses = group_->OnAll([&](int32_t rank) {
    if (rank != 1) return DispatchOn(rank, sequence).status();
    return group_->path(rank).Dispatch(sequence, InputOf(rank), {}).status();
  });
  for (const absl::Status& status : statuses) {
    ExpectRefused(status, absl::StatusCode::kInvalidArgument,
                  "rank 1 writes the shard, rank 0 dispatch-output slot 0");
  }
  EXPECT_EQ(rings(0).acquired(RingKind::kDispatchOutput), 0);
  ExpectNextTakes(0);
}

// The dispatch waits for a read that is released and goes on, on the device that reads.
TEST_P(RingsLifetimesTest, ADispatchWaitsForTheLastReadOfItsSlot) {
  Start({.dispatch_slots = 1});
  const auto made = Dispatch();
  const auto memory = rings(0).MemoryOf(made[0].slot);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto word = rings(0).ReleaseByWord(made[0].slot);
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_EQ(rings(0).Probe(made[0].slot), SlotState::kReleased);
  for (int32_t rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(rings(rank).Release(made[rank].slot).ok());
  for (RankInput& rank : inputs_) {
    rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
  }
  const Sequence sequence = group_->NextSequence();
  std::atomic<int> called = 0;
  std::atomic<bool> has_read = false;
  std::thread reader([&] {
    while (called < kRanks) std::this_thread::yield();
    // Far longer than a dispatch takes that does not wait.
    constexpr int kReads = 5000;
    for (int i = 0; i < kReads && !HasFailure(); ++i) {
      EXPECT_TRUE(RowsAt(0, memory->rows) == made[0].dispatched.rows) << "changed at read " << i;
    }
    has_read = true;
    word->Pass();
  });
  ExpectOk(group_->OnAll([&](int32_t rank) {
    ++called;
    const absl::Status status = DispatchOn(rank, sequence).status();
    EXPECT_TRUE(has_read) << "rank " << rank << " went on before the last read";
    return status;
  }));
  reader.join();
}

TEST_P(RingsLifetimesTest, AReadThatDoesNotEndMakesAllRanksLeave) {
  Start({.dispatch_slots = 1}, absl::Seconds(20));
  const auto made = Dispatch();
  const auto word = rings(2).ReleaseByWord(made[2].slot);
  ASSERT_TRUE(word.ok()) << word.status();
  for (int32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(rings(rank).Release(made[rank].slot).ok());
  const Sequence sequence = group_->NextSequence();
  std::barrier<> together(kRanks);
  const auto statuses = group_->OnAll([&](int32_t rank) {
    together.arrive_and_wait();
    return DispatchOn(rank, sequence).status();
  });
  for (const absl::Status& status : statuses) {
    ExpectRefused(status, absl::StatusCode::kFailedPrecondition,
                  "rank 2 declined: what read its dispatch-output slot last has not ended");
  }
  word->Pass();
  ExpectNextTakes(0);
}

// What is queued behind an operation that fails has neither acquired nor released.
TEST_P(RingsLifetimesTest, AFailureUndoesWhatItsOperationsDidToTheRings) {
  Start({.dispatch_slots = 2, .expert_slots = 2}, absl::Seconds(120), /*queues=*/true);
  const auto made = Dispatch();
  const Sequence behind = group_->NextSequence();
  std::vector<RingSlot> taken(kRanks);
  group_->OnAll([&](int32_t rank) -> absl::Status {
    // Stale: found at once, or when it is settled.
    const auto stale = RunExperts(rank, made[rank], 2);
    if (!stale.ok()) {
      ExpectRefused(stale.status(), absl::StatusCode::kFailedPrecondition, "version");
      return group_->path(rank).Decline(behind);
    }
    const auto next = rings(rank).Dispatch(behind, InputOf(rank), {});
    EXPECT_TRUE(next.ok()) << next.status();
    if (next.ok()) taken[rank] = next->slot;
    ExpectRefused(group_->path(rank).Synchronize(), absl::StatusCode::kFailedPrecondition,
                  "version");
    return absl::OkStatus();
  });
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(rings(rank).Probe(made[rank].slot), SlotState::kAcquired);
    EXPECT_EQ(rings(rank).acquired(RingKind::kDispatchOutput), 1);
    EXPECT_EQ(rings(rank).acquired(RingKind::kExpertOutput), 0);
    if (taken[rank].identity == 0) continue;
    EXPECT_EQ(rings(rank).Probe(taken[rank]), SlotState::kOver);
  }
  ExpectNextTakes(1);
  Prefetch(made);
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const absl::Status status = RunExperts(rank, made[rank]).status();
    return status.ok() ? group_->path(rank).Synchronize() : status;
  }));
}

TEST_P(RingsLifetimesTest, AllAreReleasedAtOnce) {
  Start({.dispatch_slots = 2, .expert_slots = 1});
  const auto first = Dispatch();
  const auto second = Dispatch();
  Prefetch(second);
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const absl::Status status = RunExperts(rank, second[rank], 1, {.keeps_rows = true}).status();
    return status.ok() ? rings(rank).ReleaseAll() : status;
  }));
  EXPECT_EQ(rings(0).acquired(RingKind::kDispatchOutput), 0);
  EXPECT_EQ(rings(0).acquired(RingKind::kExpertOutput), 0);
  EXPECT_EQ(rings(0).Probe(first[0].slot), SlotState::kFree);
  ExpectNextTakes(0);
}

TEST_P(RingsLifetimesTest, APreparedPublicationHasTheMapOfDuplicatesForItself) {
  Start({.dispatch_slots = 2});
  const Sequence sequence = group_->NextSequence();
  std::vector<TargetPtr> targets(kRanks);
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const auto target = group_->path(rank).publication()->PrepareDispatch(
        sequence, {InputOf(rank).topk_experts, kGeometry.tokens});
    if (target.ok()) targets[rank] = *target;
    return target.status();
  }));
  const auto made = Dispatch();  // the target is not prepared: it dies
  ExpectRefused(group_->path(0).publication()->PreparePublication(targets[0], nullptr),
                absl::StatusCode::kInvalidArgument, "is dead");
  ExpectOk(Release(made));
  const Sequence again = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) {
    DirectPublication& publication = *group_->path(rank).publication();
    const auto target =
        publication.PrepareDispatch(again, {InputOf(rank).topk_experts, kGeometry.tokens});
    return target.ok() ? publication.PreparePublication(*target, nullptr) : target.status();
  }));
  ExpectRefused(DispatchOn(0, group_->NextSequence()).status(), absl::StatusCode::kInvalidArgument,
                "until it is published nothing else may write the shard");
}

TEST_P(RingsLifetimesTest, OptionsThatCannotBeAreRefused) {
  Start({});
  DataPathOptions options;
  options.geometry = {.ranks = 1, .experts = 2, .tokens = 4, .topk = 2, .token_padding = 4};
  options.hidden = 16;
  options.buffer = BufferId(1);
  options.generation = Generation(1);
  const std::pair<RingOptions, const char*> wrong[] = {
      {{.dispatch_slots = -1}, "dispatch-output slots is -1"},
      {{.dispatch_slots = 65}, "expected 0 to 64"},
      {{.expert_slots = -2}, "expert-output slots -2"},
      {{.dispatch_slots = 4, .rows = RowsAfterwards::kKept}, "keeps these for backward"},
  };
  for (const auto& [rings, text] : wrong) {
    options.rings = rings;
    ExpectRefused(backend(0).CreateDataPath(options).status(), absl::StatusCode::kInvalidArgument,
                  text);
  }
  // Whoever copies the rows may have slots; what is missing then is the shard.
  options.rings = {.dispatch_slots = 4, .rows = RowsAfterwards::kCopied};
  ExpectRefused(backend(0).CreateDataPath(options).status(), absl::StatusCode::kInvalidArgument,
                "there are 0 shards");
}

INSTANTIATE_TEST_SUITE_P(Backends, RingsLifetimesTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
