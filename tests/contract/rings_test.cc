// What comes out of rings of slots is what comes out without them, bit for bit, on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "kernels/layout/shard_layout.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rings_fixture.h"
#include "tests/contract/same_results.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

class RingsContractTest : public RingsTest {
 protected:
  void ExpectEqualToDispatch(const GroupInput& input, RankGroup& group, uint32_t salt);
};

// Also by a saved plan, and the shard keeps its own rows meanwhile.
void RingsContractTest::ExpectEqualToDispatch(const GroupInput& input, RankGroup& group,
                                              uint32_t salt) {
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), salt);
  const std::vector<DispatchResult> wanted = group.Dispatch(inputs, Copy::kInPlace);
  const std::vector<SlotResult> slots = Dispatch(group, inputs);
  ASSERT_NO_FATAL_FAILURE(ExpectSameResults(DispatchedOf(slots), wanted));
  std::vector<PlanPtr> plans;
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    EXPECT_EQ(slots[rank].slot.index, slots[0].slot.index);
    EXPECT_EQ(slots[rank].slot.identity, slots[0].slot.identity);
    EXPECT_TRUE(group.ReadRows(rank) == wanted[rank].rows);
    plans.push_back(slots[rank].dispatched.plan);
    ASSERT_TRUE(group.path(rank).rings()->Release(slots[rank].slot).ok());
  }
  const std::vector<RankInput> others = NamedInputs(input, group.hidden(), ~salt);
  const auto wanted_again = group.DispatchWithPlan(wanted, others, Copy::kInPlace);
  const auto again = Dispatch(group, others, plans);
  SCOPED_TRACE("by a saved plan");
  ASSERT_NO_FATAL_FAILURE(ExpectSameResults(DispatchedOf(again), wanted_again));
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    ASSERT_TRUE(group.path(rank).rings()->Release(again[rank].slot).ok());
  }
}

TEST_P(RingsContractTest, RandomGroupsAreEqualToDispatch) {
  const int groups = GetParam().random_groups;
  OnRandomGroups(random_, groups, GetParam().max_ranks, [&](int i, const GroupInput& input) {
    RankGroup group(backends(), OptionsFor(input.geometry, {.dispatch_slots = 1 + i % 3}));
    // More dispatches than slots.
    for (int round = 0; round < 2; ++round) ExpectEqualToDispatch(input, group, 2 * i + round);
  });
}

// A layer on each of many inputs, on one rank.
constexpr int kInputs = 11;
struct Layers {
  ExpertWeights weights;
  const std::vector<Sequence>& sequences;  // three of each input, in the order in which they come
};

// With the rows of an input where they are taken from and put to. It outlives all operations of all
// ranks: memory that comes or goes waits for the kernels of a device, which may wait for this rank.
struct LayerMemory {
  LayerMemory(Backend& on, const std::vector<std::vector<BFloat16>>& hidden, const RankInput& from)
      : routes(on, from.topk_experts), route_weights(on, from.route_weights) {
    for (const auto& rows : hidden) {
      in.emplace_back(on, rows);
      out.emplace_back(on, rows.size());
    }
  }
  DispatchInput InputOf(int i) const {
    return {in[i].data(), routes.data(), route_weights.data(), RingsTest::kGeometry.tokens};
  }
  std::vector<std::vector<BFloat16>> Sums() const {
    std::vector<std::vector<BFloat16>> sums;
    for (const auto& sum : out) sums.push_back(sum.Get());
    return sums;
  }

  const DeviceArray<int32_t> routes;
  const DeviceArray<float> route_weights;
  std::deque<DeviceArray<BFloat16>> in;
  std::deque<DeviceArray<BFloat16>> out;
};

// The experts of one input, from its slot into the shard or an expert-output slot, and its sums.
absl::Status Finish(DataPath& path, const Layers& layers, const SlotDispatched& from, Sequence at,
                    bool into_shard, BFloat16* out) {
  SlotExperts experts = {.apply_route_weights = true};
  if (into_shard) experts.output = path.rows();
  const auto rows = path.rings()->RunExperts(from.slot, from.plan, layers.weights, experts);
  if (!rows.ok()) return rows.status();
  if (into_shard) return path.Combine(at, from.plan, {path.rows(), nullptr}, {out, nullptr});
  return path.rings()->Combine(at, from.plan, *rows, nullptr, {out, nullptr});
}

// `depth` inputs are dispatched before the first is computed, as a pipeline has it (1F1B), with no
// wait of the host between.
absl::Status RunPending(DataPath& path, const Layers& layers, int depth, LayerMemory& memory) {
  BufferRings& rings = *path.rings();
  const Sequence* next = layers.sequences.data();
  std::deque<SlotDispatched> pending;
  for (int i = 0; i < kInputs + depth; ++i) {
    if (i < kInputs) {
      auto made = rings.Dispatch(*next++, memory.InputOf(i), {});
      if (!made.ok()) return made.status();
      pending.push_back(*std::move(made));
    }
    if (i < depth) continue;
    const SlotDispatched oldest = pending.front();
    pending.pop_front();
    absl::Status status = path.PrefetchWeights(*next++, oldest.plan, layers.weights);
    if (!status.ok()) return status;
    const bool into_shard = i % 2 == 0;
    status = Finish(path, layers, oldest, *next++, into_shard, memory.out[i - depth].data());
    if (!status.ok()) return status;
  }
  return path.Synchronize();
}

// The same in the shard, one by one.
absl::Status RunOneByOne(DataPath& path, const Layers& layers, LayerMemory& memory) {
  const Sequence* next = layers.sequences.data();
  for (int i = 0; i < kInputs; ++i) {
    const auto plan = path.Dispatch(*next++, memory.InputOf(i), {});
    if (!plan.ok()) return plan.status();
    absl::Status status = path.PrefetchWeights(*next++, *plan, layers.weights);
    const RunExpertsInput experts = {path.rows(), path.row_weights(), path.rows()};
    if (status.ok()) status = path.RunExperts(*plan, layers.weights, experts);
    const CombineOutput out = {memory.out[i].data(), nullptr};
    if (status.ok()) status = path.Combine(*next++, *plan, {path.rows(), nullptr}, out);
    if (status.ok()) status = path.Synchronize();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST_P(RingsContractTest, SchedulesWithSeveralPendingGiveTheBitsOfLayersOneByOne) {
  Start({.dispatch_slots = 4, .expert_slots = 2}, absl::Seconds(120), /*queues=*/true);
  std::vector<std::vector<std::vector<BFloat16>>> hidden(kRanks);  // [R][inputs]
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    for (int i = 0; i < kInputs; ++i) {
      hidden[rank].push_back(NormalNumbers(random_, inputs_[rank].hidden.size(), 1.0));
    }
  }
  constexpr int kOneByOne = -1;
  const auto run = [&](int depth) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3 * kInputs; ++i) sequences.push_back(group_->NextSequence());
    std::deque<LayerMemory> memory;  // [R]
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      memory.emplace_back(backend(rank), hidden[rank], inputs_[rank]);
    }
    ExpectOk(group_->OnAll([&](int32_t rank) {
      const Layers layers = {store_->WeightsOf(rank, 0, 1), sequences};
      DataPath& path = group_->path(rank);
      return depth == kOneByOne ? RunOneByOne(path, layers, memory[rank])
                                : RunPending(path, layers, depth, memory[rank]);
    }));
    std::vector<std::vector<std::vector<BFloat16>>> sums;  // [R][inputs]
    for (const LayerMemory& of_rank : memory) sums.push_back(of_rank.Sums());
    return sums;
  };
  const auto wanted = run(kOneByOne);
  ASSERT_NE(wanted[0][0], hidden[0][0]);
  for (int depth : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << "depth " << depth);
    EXPECT_EQ(run(depth), wanted);
  }
}

// What they take in memory: shard_layout_test.
TEST_P(RingsContractTest, WithoutSlotsThereIsNoneToTake) {
  Start({});
  ExpectRefused(DispatchOn(0, Sequence(1)).status(), absl::StatusCode::kInvalidArgument,
                "the buffer has no dispatch-output slots");
  EXPECT_EQ(rings(0).slots(RingKind::kDispatchOutput), 0);
  EXPECT_EQ(rings(0).slots(RingKind::kExpertOutput), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, RingsContractTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
