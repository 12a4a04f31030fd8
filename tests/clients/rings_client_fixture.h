// Tests of output slots by rank clients.
#ifndef PERIGEE_TESTS_CLIENTS_RINGS_CLIENT_FIXTURE_H_
#define PERIGEE_TESTS_CLIENTS_RINGS_CLIENT_FIXTURE_H_

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {

inline constexpr int32_t kSlots = ClientCluster::kDispatchOutputSlots;
inline constexpr uint64_t kVersion = ClientCluster::kVersion;

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
    EXPECT_THAT(std::string(done.status.message()), ::testing::HasSubstr(text));
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

}  // namespace perigee

#endif  // PERIGEE_TESTS_CLIENTS_RINGS_CLIENT_FIXTURE_H_
