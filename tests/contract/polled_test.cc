// How those who do not wait learn of the ends of queued operations, and where a dispatch leaves the
// plan that it makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_backends.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

constexpr int32_t kTokens = 40;
constexpr int32_t kHidden = 32;

// A plan's tensors where a dispatch is to write them, poisoned.
struct PlanPlace {
  PlanPlace(Backend& backend, const Geometry& g)
      : sequence(backend, 1),
        dst(backend, g.routes()),
        cu_seqlens(backend, g.groups()),
        zero_fill_ranges(backend, size_t{2} * g.groups()),
        experts_to_copy(backend, static_cast<size_t>(g.ranks) * g.slots),
        load(backend, g.ranks),
        home_load(backend, g.ranks) {}

  PlanArrays arrays() const {
    return {sequence.data(),        dst.data(),  cu_seqlens.data(), zero_fill_ranges.data(),
            experts_to_copy.data(), load.data(), home_load.data()};
  }
  void ExpectHolds(const PlanTensors& tensors, Sequence of) const {
    EXPECT_EQ(sequence.Get()[0], of.value);
    EXPECT_EQ(dst.Get(), tensors.dst);
    EXPECT_EQ(cu_seqlens.Get(), tensors.cu_seqlens);
    EXPECT_EQ(zero_fill_ranges.Get(), tensors.zero_fill_ranges);
    EXPECT_EQ(experts_to_copy.Get(), tensors.experts_to_copy);
    EXPECT_EQ(load.Get(), tensors.load);
    EXPECT_EQ(home_load.Get(), tensors.home_load);
  }

  DeviceArray<uint64_t> sequence;
  DeviceArray<int32_t> dst, cu_seqlens, zero_fill_ranges, experts_to_copy, load, home_load;
};

class PolledContractTest : public ContractTest {
 protected:
  PolledContractTest() : random_(TestSeed()) {
    geometry_.ranks = std::min(4, GetParam().max_ranks);
    inputs_ = NamedInputs(PlainGroup(random_, geometry_), kHidden, 1);
  }
  std::unique_ptr<RankGroup> Group() {
    RankGroupOptions options;
    options.geometry = geometry_;
    options.hidden = kHidden;
    options.own_mappings = GetParam().own_mappings;
    return std::make_unique<RankGroup>(queueing_backends(), options);
  }
  // Until so many operations have ended or one has failed; what was seen altogether.
  static Polled PollUntil(DataPath& path, size_t wanted) {
    Polled seen;
    while (seen.ended < wanted && !seen.failed) {
      const Polled more = path.Poll();
      EXPECT_EQ(path.durations().size(), more.ended);
      seen.ended += more.ended;
      seen.failed = more.failed;
    }
    return seen;
  }

  Geometry geometry_ = {
      .ranks = 4, .experts = 8, .tokens = kTokens, .topk = 3, .slots = 2, .token_padding = 8};
  std::mt19937_64 random_;
  std::vector<RankInput> inputs_;
};

TEST_P(PolledContractTest, ADispatchLeavesItsPlanWhereItIsWanted) {
  const auto group = Group();
  const Sequence sequence = group->NextSequence();
  ExpectOk(group->OnAll([&](int32_t rank) {
    Backend& backend = group->backend(rank);
    DataPath& path = group->path(rank);
    const DeviceArray<BFloat16> hidden(backend, inputs_[rank].hidden);
    const DeviceArray<int32_t> topk_experts(backend, inputs_[rank].topk_experts);
    const PlanPlace place(backend, geometry_);
    DispatchOutput output;
    output.plan = place.arrays();
    const absl::StatusOr<PlanPtr> plan = path.Dispatch(
        sequence, {hidden.data(), topk_experts.data(), nullptr, inputs_[rank].token_count}, output);
    if (!plan.ok()) return plan.status();
    if (absl::Status status = path.Synchronize(); !status.ok()) return status;
    const absl::StatusOr<PlanTensors> tensors = path.ReadPlan(*plan);
    if (tensors.ok()) place.ExpectHolds(*tensors, sequence);
    return tensors.status();
  }));
}

TEST_P(PolledContractTest, EndsAreSeenInOrderAndOnce) {
  const auto group = Group();
  if (!group->path(0).queues()) GTEST_SKIP() << "this backend queues nothing";
  std::vector<Sequence> sequences;
  for (int i = 0; i < 6; ++i) sequences.push_back(group->NextSequence());
  ExpectOk(group->OnAll([&](int32_t rank) -> absl::Status {
    DataPath& path = group->path(rank);
    EXPECT_EQ(path.Poll().ended, 0u);
    for (int i = 0; i < 3; ++i) {
      if (absl::Status status = path.Barrier(sequences[i]); !status.ok()) return status;
    }
    Polled seen = PollUntil(path, 2);
    // More come while some have been seen and some have not.
    for (int i = 3; i < 6; ++i) {
      if (absl::Status status = path.Barrier(sequences[i]); !status.ok()) return status;
    }
    seen = PollUntil(path, 6 - seen.ended);
    EXPECT_FALSE(seen.failed);
    absl::Status status = path.Synchronize();
    EXPECT_EQ(path.operations_ended(), 0u) << "all have been told";
    return status;
  }));
}

TEST_P(PolledContractTest, AFailureIsToldAfterThoseBeforeIt) {
  const auto group = Group();
  if (!group->path(0).queues()) GTEST_SKIP() << "this backend queues nothing";
  inputs_[geometry_.ranks - 1].topk_experts[4] = -2;
  std::vector<Sequence> sequences;
  for (int i = 0; i < 5; ++i) sequences.push_back(group->NextSequence());
  ExpectOk(group->OnAll([&](int32_t rank) -> absl::Status {
    Backend& backend = group->backend(rank);
    DataPath& path = group->path(rank);
    const DeviceArray<BFloat16> hidden(backend, inputs_[rank].hidden);
    const DeviceArray<int32_t> topk_experts(backend, inputs_[rank].topk_experts);
    const PlanPlace place(backend, geometry_);
    DispatchOutput output;
    output.plan = place.arrays();
    absl::Status status = path.Barrier(sequences[0]);
    if (status.ok()) status = path.Barrier(sequences[1]);
    if (status.ok()) status = PollUntil(path, 1).failed ? absl::InternalError("early") : status;
    if (!status.ok()) return status;
    const DispatchInput input{hidden.data(), topk_experts.data(), nullptr,
                              inputs_[rank].token_count};
    const absl::StatusOr<PlanPtr> plan = path.Dispatch(sequences[2], input, output);
    if (!plan.ok()) return plan.status();
    if (status = path.Barrier(sequences[3]); !status.ok()) return status;
    EXPECT_TRUE(PollUntil(path, 4).failed);
    status = path.Synchronize();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(path.last_error()->sequence, sequences[2].value);
    EXPECT_EQ(place.sequence.Get()[0], 0xA5A5A5A5A5A5A5A5u) << "no plan was made";
    // And it goes on.
    if (status = path.Barrier(sequences[4]); !status.ok()) return status;
    EXPECT_FALSE(PollUntil(path, 1).failed);
    return path.Synchronize();
  }));
}

// Whoever waits for the prefetch alone finds all rows in the shard, whether it ran beside or not.
TEST_P(PolledContractTest, APrefetchesEndCoversTheDispatchBeforeIt) {
  const WeightsShape shape = {kHidden, 24};
  std::vector<ExpertBits> experts;
  for (int32_t expert = 0; expert < geometry_.experts; ++expert) {
    const auto matrix = [&] { return NormalNumbers(random_, shape.matrix_elements(), 0.1); };
    experts.push_back({matrix(), matrix(), matrix()});
  }
  std::vector<std::vector<BFloat16>> expected(geometry_.ranks);
  for (const bool prefetches : {false, true}) {
    for (const bool beside : {false, true}) {
      const auto group = Group();
      ExpertStore store(queueing_backends(), geometry_, shape, GetParam().own_mappings);
      store.Load(0, 1, experts);
      const Sequence dispatch = group->NextSequence();
      const Sequence prefetch = group->NextSequence();
      for (int32_t rank = 0; rank < geometry_.ranks; ++rank) group->Poison(rank);
      ExpectOk(group->OnAll([&](int32_t rank) -> absl::Status {
        DataPath& path = group->path(rank);
        const DeviceArray<BFloat16> hidden(group->backend(rank), inputs_[rank].hidden);
        const DeviceArray<int32_t> topk_experts(group->backend(rank), inputs_[rank].topk_experts);
        const absl::StatusOr<PlanPtr> plan = path.Dispatch(
            dispatch, {hidden.data(), topk_experts.data(), nullptr, inputs_[rank].token_count}, {});
        if (!plan.ok()) return plan.status();
        if (!prefetches) {
          if (absl::Status status = path.Synchronize(); !status.ok()) return status;
          expected[rank] = group->ReadRows(rank);
          return absl::OkStatus();
        }
        const ExpertWeights weights = store.WeightsOf(rank, 0, 1);
        absl::Status status = beside ? path.PrefetchWeightsBeside(prefetch, *plan, weights)
                                     : path.PrefetchWeights(prefetch, *plan, weights);
        if (status.ok() && beside) status = path.Join();
        if (!status.ok()) return status;
        if (path.queues()) {
          EXPECT_FALSE(PollUntil(path, beside ? 3 : 2).failed);
        }
        EXPECT_EQ(group->ReadRows(rank), expected[rank]) << "rank " << rank;
        return path.Synchronize();
      }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PolledContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
