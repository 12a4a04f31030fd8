#include "kernels/rank/agreement.h"

#include <gtest/gtest.h>

#include <vector>

namespace perigee {
namespace {

constexpr uint64_t kSequence = 6;

RankEntry EntryOf(const OperationDescriptor& descriptor, uint32_t flags = 0) {
  RankEntry entry;
  entry.statement.tag = {BufferId(1), Generation(2), Sequence(kSequence)};
  entry.statement.descriptor = descriptor;
  entry.record = {kSequence, HashStatement(entry.statement), flags, 0};
  return entry;
}

OperationDescriptor Prefetch(int32_t layer) {
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(Operation::kPrefetchWeights);
  descriptor.layer = layer;
  descriptor.experts = 8;
  return descriptor;
}

TEST(AgreementTest, AllAlikeGoOn) {
  const std::vector<RankEntry> entries(3, EntryOf(Prefetch(1)));
  EXPECT_TRUE(SameStatements(entries));
  EXPECT_EQ(Decide(kSequence, entries).reason, AbortReason::kNone);
}

TEST(AgreementTest, TheMinorityIsNamed) {
  std::vector<RankEntry> entries(4, EntryOf(Prefetch(1)));
  entries[0] = EntryOf(Prefetch(2));
  EXPECT_FALSE(SameStatements(entries));
  const Decision decision = Decide(kSequence, entries);
  EXPECT_EQ(decision.reason, AbortReason::kDisagreement);
  EXPECT_EQ(decision.rank, 0);
  EXPECT_EQ(decision.text, "rank 0 says layer 2, rank 1 says 1");
  EXPECT_EQ(static_cast<uint64_t>(decision.seen), entries[0].record.statement_hash);
  EXPECT_EQ(static_cast<uint64_t>(decision.expected), entries[1].record.statement_hash);
}

TEST(AgreementTest, WithAsManyOnEachSideTheLowestRankIsRight) {
  const std::vector<RankEntry> entries = {EntryOf(Prefetch(1)), EntryOf(Prefetch(2))};
  EXPECT_EQ(Decide(kSequence, entries).text, "rank 1 says layer 2, rank 0 says 1");
}

TEST(AgreementTest, EveryFieldThatDiffersIsNamed) {
  OperationDescriptor combine = Prefetch(-1);
  combine.operation = static_cast<uint32_t>(Operation::kCombine);
  combine.hidden = 64;
  const std::vector<RankEntry> entries = {EntryOf(Prefetch(1)), EntryOf(combine)};
  EXPECT_EQ(Decide(kSequence, entries).text,
            "rank 1 says operation combine, rank 0 says prefetch weights; rank 1 says layer -1, "
            "rank 0 says 1; rank 1 says hidden 64, rank 0 says 0");
}

// No field of a descriptor or of its tag may be left out of the hash or of the message.
TEST(AgreementTest, NoFieldIsForgotten) {
  const std::vector<void (*)(Statement&)> changes = {
      [](Statement& s) { s.tag.buffer = BufferId(77); },
      [](Statement& s) { s.tag.generation = Generation(77); },
      [](Statement& s) { s.tag.sequence = Sequence(77); },
      [](Statement& s) { s.descriptor.operation = 77; },
      [](Statement& s) { s.descriptor.tokens = 77; },
      [](Statement& s) { s.descriptor.hidden = 77; },
      [](Statement& s) { s.descriptor.topk = 77; },
      [](Statement& s) { s.descriptor.experts = 77; },
      [](Statement& s) { s.descriptor.slots = 77; },
      [](Statement& s) { s.descriptor.token_padding = 77; },
      [](Statement& s) { s.descriptor.intermediate = 77; },
      [](Statement& s) { s.descriptor.dtype = 77; },
      [](Statement& s) { s.descriptor.layer = 77; },
      [](Statement& s) { s.descriptor.plan_sequence = 77; },
      [](Statement& s) { s.descriptor.weights_version = 77; },
  };
  for (const auto& change : changes) {
    std::vector<RankEntry> entries(3, EntryOf(Prefetch(1)));
    change(entries[1].statement);
    entries[1].record.statement_hash = HashStatement(entries[1].statement);
    const Decision decision = Decide(kSequence, entries);
    EXPECT_EQ(decision.reason, AbortReason::kDisagreement);
    EXPECT_NE(decision.text.find("77"), std::string::npos) << decision.text;
  }
}

TEST(AgreementTest, AForgedHashIsADisagreementToo) {
  std::vector<RankEntry> entries(3, EntryOf(Prefetch(1)));
  entries[2].record.statement_hash ^= 1;
  EXPECT_EQ(Decide(kSequence, entries).text, "ranks 2 and 0 gave different statement hashes");
}

TEST(AgreementTest, WhatADecliningRankSaysIsNotCompared) {
  std::vector<RankEntry> entries(3, EntryOf(Prefetch(1)));
  entries[0] = EntryOf(OperationDescriptor(), kEntryDeclined);
  EXPECT_TRUE(SameStatements(entries));
  const Decision decision = Decide(kSequence, entries);
  EXPECT_EQ(decision.reason, AbortReason::kDeclined);
  EXPECT_EQ(decision.rank, 0);
  EXPECT_EQ(decision.text, "rank 0 declined");
}

TEST(AgreementTest, AllMayDecline) {
  const std::vector<RankEntry> entries(2, EntryOf(OperationDescriptor(), kEntryDeclined));
  EXPECT_TRUE(SameStatements(entries));
  EXPECT_EQ(Decide(kSequence, entries).text, "ranks 0, 1 declined");
}

TEST(AgreementTest, PrecedenceIsTheSameForAll) {
  std::vector<RankEntry> entries(4, EntryOf(Prefetch(1)));
  entries[3] = EntryOf(Prefetch(1), kEntryCancelWanted);
  EXPECT_EQ(Decide(kSequence, entries).reason, AbortReason::kCancelled);
  entries[2] = EntryOf(Prefetch(1), kEntryBadRoute);
  entries[2].planning = {5, 4, 1, -9};
  const Decision bad_route = Decide(kSequence, entries);
  EXPECT_EQ(bad_route.reason, AbortReason::kBadRoute);
  EXPECT_EQ(bad_route.text, "rank 2 token 4 k 1: expert id -9, expected -1 (masked) to 7");
  entries[1] = EntryOf(Prefetch(3));
  EXPECT_EQ(Decide(kSequence, entries).reason, AbortReason::kDisagreement);
  entries[0] = EntryOf(Prefetch(1), kEntryDeclined);
  EXPECT_EQ(Decide(kSequence, entries).reason, AbortReason::kDeclined);
  entries[1].record.sequence = kSequence - 2;
  const Decision out_of_step = Decide(kSequence, entries);
  EXPECT_EQ(out_of_step.reason, AbortReason::kOutOfStep);
  EXPECT_EQ(out_of_step.text,
            "rank 1 has nothing to say about sequence 6; its last word was on sequence 4");
}

TEST(AgreementTest, GatheringWeightsMustBeAgreedOn) {
  std::vector<RankEntry> entries(3, EntryOf(Prefetch(1), kEntryGathersWeights));
  EXPECT_EQ(Decide(kSequence, entries).reason, AbortReason::kNone);
  entries[1] = EntryOf(Prefetch(1));
  EXPECT_EQ(Decide(kSequence, entries).text, "rank 1 does not gather route weights, rank 0 does");
}

}  // namespace
}  // namespace perigee
