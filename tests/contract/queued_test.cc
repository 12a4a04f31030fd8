// Operations that are queued one behind the other with no wait of the host between them, and what
// becomes of those behind one that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int32_t kTokens = 50;
constexpr WeightsShape kShape = {48, 72};

class QueuedContractTest : public ContractTest {
 protected:
  QueuedContractTest() : random_(TestSeed()) {
    geometry_.ranks = std::min(4, GetParam().max_ranks);
    input_ = PlainGroup(random_, geometry_);
    for (int32_t expert = 0; expert < geometry_.experts; ++expert) {
      const auto matrix = [&] { return NormalNumbers(random_, kShape.matrix_elements(), 0.1); };
      experts_.push_back({matrix(), matrix(), matrix()});
    }
    inputs_ = NamedInputs(input_, kShape.hidden, 1);
    for (RankInput& rank : inputs_) {
      rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
    }
  }

  // Three steps of dispatch, prefetch, experts and combine, each on the last one's output.
  std::vector<std::vector<BFloat16>> RunSteps(const RankBackends& backends) {
    RankGroup group(backends, Options());
    ExpertStore store(backends, geometry_, kShape, GetParam().own_mappings);
    store.Load(0, 1, experts_);
    std::vector<Sequence> sequences;
    for (int i = 0; i < 9; ++i) sequences.push_back(group.NextSequence());
    std::vector<std::vector<BFloat16>> outputs(geometry_.ranks);
    ExpectOk(group.OnAll([&](int32_t rank) {
      Backend& backend = backends.of(rank);
      DataPath& path = group.path(rank);
      const DeviceArray<BFloat16> hidden(backend, inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend, inputs_[rank].topk_experts);
      const DeviceArray<float> weights(backend, inputs_[rank].route_weights);
      const DispatchInput in = {hidden.data(), topk_experts.data(), weights.data(), kTokens};
      absl::Status status;
      for (size_t step = 0; step < sequences.size() && status.ok(); step += 3) {
        status = QueueStep(path, in, store.WeightsOf(rank, 0, 1), &sequences[step], hidden.data());
      }
      if (status.ok()) status = path.Synchronize();
      outputs[rank] = hidden.Get();
      return status;
    }));
    return outputs;
  }
  static absl::Status QueueStep(DataPath& path, const DispatchInput& in,
                                const ExpertWeights& weights, const Sequence* sequences,
                                BFloat16* out) {
    const absl::StatusOr<PlanPtr> plan = path.Dispatch(sequences[0], in, {});
    if (!plan.ok()) return plan.status();
    absl::Status status = path.PrefetchWeights(sequences[1], *plan, weights);
    if (!status.ok()) return status;
    status = path.RunExperts(*plan, weights, {path.rows(), path.row_weights(), path.rows()});
    if (!status.ok()) return status;
    return path.Combine(sequences[2], *plan, {path.rows(), nullptr}, {out, nullptr});
  }
  RankGroupOptions Options() const {
    RankGroupOptions options;
    options.geometry = geometry_;
    options.hidden = kShape.hidden;
    options.intermediate = kShape.intermediate;
    options.own_mappings = GetParam().own_mappings;
    return options;
  }

  Geometry geometry_ = {
      .ranks = 4, .experts = 8, .tokens = kTokens, .topk = 3, .slots = 2, .token_padding = 8};
  std::mt19937_64 random_;
  GroupInput input_;
  std::vector<RankInput> inputs_;
  std::vector<ExpertBits> experts_;
};

TEST_P(QueuedContractTest, QueuedStepsGiveTheBitsOfSettledOnes) {
  const std::vector<std::vector<BFloat16>> settled = RunSteps(backends());
  EXPECT_NE(settled[0], inputs_[0].hidden);
  EXPECT_EQ(RunSteps(queueing_backends()), settled);
}

// Two rounds of a dispatch, a prefetch and a dispatch by the saved plan, the first two of which may
// run beside each other, then experts and combine.
TEST_P(QueuedContractTest, APrefetchBesideADispatchGivesTheBitsOfOneInItsTurn) {
  std::vector<std::vector<std::vector<BFloat16>>> outputs;
  for (const bool beside : {false, true}) {
    RankGroup group(queueing_backends(), Options());
    ExpertStore store(queueing_backends(), geometry_, kShape, GetParam().own_mappings);
    store.Load(0, 1, experts_);
    std::vector<Sequence> sequences;
    for (int i = 0; i < 8; ++i) sequences.push_back(group.NextSequence());
    outputs.emplace_back(geometry_.ranks);
    ExpectOk(group.OnAll([&](int32_t rank) {
      DataPath& path = group.path(rank);
      const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
      const DispatchInput in = {hidden.data(), topk_experts.data(), nullptr, kTokens};
      const ExpertWeights weights = store.WeightsOf(rank, 0, 1);
      absl::Status status;
      for (size_t round = 0; round < sequences.size() && status.ok(); round += 4) {
        const absl::StatusOr<PlanPtr> plan = path.Dispatch(sequences[round], in, {});
        if (!plan.ok()) return plan.status();
        const Sequence prefetch = sequences[round + 1];
        status = beside ? path.PrefetchWeightsBeside(prefetch, *plan, weights)
                        : path.PrefetchWeights(prefetch, *plan, weights);
        if (status.ok()) status = path.DispatchWithPlan(sequences[round + 2], *plan, in, {});
        if (status.ok() && beside) status = path.Join();
        if (status.ok()) {
          status = path.RunExperts(*plan, weights, {path.rows(), nullptr, path.rows()});
        }
        if (!status.ok()) return status;
        status = path.Combine(sequences[round + 3], *plan, {path.rows(), nullptr},
                              {hidden.data(), nullptr});
      }
      if (status.ok()) status = path.Synchronize();
      if (status.ok() && path.queues()) {
        EXPECT_EQ(path.operations_ended(), beside ? 12u : 10u) << "a join is counted";
      }
      outputs.back()[rank] = hidden.Get();
      return status;
    }));
  }
  EXPECT_NE(outputs[0][0], inputs_[0].hidden);
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_P(QueuedContractTest, AHomeThatHeldOthersIsToldByTheJoinAndWhatRanBesideCounts) {
  RankGroup group(queueing_backends(), Options());
  ExpertStore store(queueing_backends(), geometry_, kShape, GetParam().own_mappings);
  store.Load(0, 1, experts_);
  // All routes go to the experts of rank 0, so that the others have these in their slots.
  const int32_t experts_per_rank = geometry_.experts / geometry_.ranks;
  for (RankInput& rank : inputs_) {
    for (int32_t& expert : rank.topk_experts)
      expert = expert < 0 ? expert : expert % experts_per_rank;
  }
  store.SetHeader(0, 0, 2);
  const Sequence dispatch = group.NextSequence();
  const Sequence prefetch = group.NextSequence();
  const Sequence again = group.NextSequence();
  const std::vector<absl::Status> statuses = group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
    const DispatchInput in = {hidden.data(), topk_experts.data(), nullptr, kTokens};
    const absl::StatusOr<PlanPtr> plan = path.Dispatch(dispatch, in, {});
    if (!plan.ok()) return plan.status();
    absl::Status stale = path.PrefetchWeightsBeside(prefetch, *plan, store.WeightsOf(rank, 0, 1));
    absl::Status status = path.DispatchWithPlan(again, *plan, in, {});
    if (!status.ok()) return status;
    if (stale.ok()) stale = path.Join();
    if (stale.ok()) stale = path.Synchronize();
    if (path.queues()) {
      EXPECT_EQ(path.operations_ended(), rank == 0 ? 4u : 3u);
    }
    EXPECT_TRUE(path.ReadPlan(*plan).ok()) << "of a dispatch before it";
    return stale;
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  for (int32_t rank = 1; rank < geometry_.ranks; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kFailedPrecondition) << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("rank 0"));
    for (int32_t slot = 0; slot < geometry_.slots; ++slot) {
      EXPECT_EQ(store.tag(rank, slot).version, 0u) << "rank " << rank << " slot " << slot;
    }
  }
  const Sequence next = group.NextSequence();
  ExpectOk(group.OnAll([&](int32_t rank) {
    absl::Status status = group.path(rank).Barrier(next);
    return status.ok() ? group.path(rank).Synchronize() : status;
  }));
}

TEST_P(QueuedContractTest, WhatIsQueuedBehindAFailureIsDeclined) {
  RankGroup group(queueing_backends(), Options());
  const int32_t bad_rank = geometry_.ranks - 1;
  inputs_[bad_rank].topk_experts[7] = geometry_.experts;
  const Sequence dispatch = group.NextSequence();
  const Sequence combine = group.NextSequence();
  const Sequence barrier = group.NextSequence();
  std::vector<PlanPtr> plans(geometry_.ranks);
  const std::vector<absl::Status> statuses = group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
    auto plan = path.Dispatch(dispatch, {hidden.data(), topk_experts.data(), nullptr, kTokens}, {});
    if (!plan.ok()) return plan.status();
    plans[rank] = *plan;
    absl::Status status =
        path.Combine(combine, *plan, {path.rows(), nullptr}, {hidden.data(), nullptr});
    if (status.ok()) status = path.Barrier(barrier);
    return status.ok() ? path.Synchronize() : status;
  });
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()),
                HasSubstr("rank " + std::to_string(bad_rank) + " token 2 k 1"));
    ASSERT_TRUE(group.path(rank).last_error().has_value());
    EXPECT_EQ(group.path(rank).last_error()->sequence, dispatch.value);
  }
  if (plans[0] == nullptr) return;  // this backend told it at the call: nothing was queued behind
  EXPECT_EQ(group.path(0).ReadPlan(plans[0]).status().code(), absl::StatusCode::kInvalidArgument);
  // All ranks have declined alike, so they still stand at the same sequence.
  const Sequence next = group.NextSequence();
  ExpectOk(group.OnAll([&](int32_t rank) {
    absl::Status status = group.path(rank).Barrier(next);
    return status.ok() ? group.path(rank).Synchronize() : status;
  }));
}

// Nothing is copied beside a dispatch that makes no plan, nor where a peer declines the prefetch.
TEST_P(QueuedContractTest, APrefetchBesideWhatFailsTouchesNoSlotAndEnds) {
  for (const bool bad_route : {true, false}) {
    RankGroup group(queueing_backends(), Options());
    ExpertStore store(queueing_backends(), geometry_, kShape, GetParam().own_mappings);
    store.Load(0, 1, experts_);
    const int32_t bad_rank = geometry_.ranks - 1;
    std::vector<RankInput> inputs = inputs_;
    if (bad_route) inputs[bad_rank].topk_experts[7] = geometry_.experts;
    const Sequence dispatch = group.NextSequence();
    const Sequence prefetch = group.NextSequence();
    const std::vector<absl::Status> statuses = group.OnAll([&](int32_t rank) {
      DataPath& path = group.path(rank);
      const DeviceArray<BFloat16> hidden(backend(rank), inputs[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(rank), inputs[rank].topk_experts);
      const DispatchInput in = {hidden.data(), topk_experts.data(), nullptr, kTokens};
      const absl::StatusOr<PlanPtr> plan = path.Dispatch(dispatch, in, {});
      if (!plan.ok()) return plan.status();
      if (!bad_route && rank == bad_rank) {
        absl::Status status = path.Decline(prefetch);
        return status.ok() ? path.Synchronize() : status;
      }
      absl::Status status =
          path.PrefetchWeightsBeside(prefetch, *plan, store.WeightsOf(rank, 0, 1));
      if (status.ok()) status = path.Join();
      return status.ok() ? path.Synchronize() : status;
    });
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
      const bool declines = !bad_route && rank == bad_rank;
      EXPECT_EQ(statuses[rank].ok(), declines) << statuses[rank];
      if (!bad_route) continue;  // copies may have begun when a peer declines
      for (int32_t slot = 0; slot < geometry_.slots; ++slot) {
        EXPECT_EQ(store.tag(rank, slot).version, 0u) << "rank " << rank << " slot " << slot;
      }
    }
    // Where the call tells of it, nothing is queued behind.
    const bool called = group.path(0).queues() || !bad_route;
    const Sequence next = called ? group.NextSequence() : prefetch;
    ExpectOk(group.OnAll([&](int32_t rank) {
      absl::Status status = group.path(rank).Barrier(next);
      return status.ok() ? group.path(rank).Synchronize() : status;
    }));
  }
}

TEST_P(QueuedContractTest, MarksTimeWhatLiesBetweenThem) {
  RankGroup group(queueing_backends(), Options());
  if (!group.path(0).queues()) GTEST_SKIP() << "this backend queues nothing: callers time it";
  const std::vector<Sequence> sequences = {group.NextSequence(), group.NextSequence(),
                                           group.NextSequence(), group.NextSequence()};
  ExpectOk(group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    EXPECT_FALSE(path.MarkTime().ok()) << "operations are timed";
    path.set_timing(Timing::kMarks);
    absl::Status status = path.MarkTime();
    if (status.ok()) status = path.Barrier(sequences[0]);
    if (status.ok()) status = path.Barrier(sequences[1]);
    if (status.ok()) status = path.MarkTime();
    if (status.ok()) status = path.Barrier(sequences[2]);
    if (status.ok()) status = path.MarkTime();
    if (status.ok()) status = path.Synchronize();
    if (!status.ok()) return status;
    EXPECT_THAT(path.durations(), ElementsAre(Gt(absl::ZeroDuration()), Gt(absl::ZeroDuration())));
    EXPECT_EQ(path.operations_ended(), 3u);
    path.set_timing(Timing::kOperations);
    status = path.Barrier(sequences[3]);
    if (status.ok()) status = path.Synchronize();
    EXPECT_THAT(path.durations(), ElementsAre(Gt(absl::ZeroDuration())));
    EXPECT_EQ(path.operations_ended(), 1u);
    return status;
  }));
}

TEST_P(QueuedContractTest, NothingIsTimedBehindAFailure) {
  RankGroup group(queueing_backends(), Options());
  if (!group.path(0).queues()) GTEST_SKIP() << "this backend queues nothing: callers time it";
  inputs_[0].topk_experts[7] = geometry_.experts;
  const std::vector<Sequence> sequences = {group.NextSequence(), group.NextSequence(),
                                           group.NextSequence()};
  const std::vector<absl::Status> statuses = group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
    path.set_timing(Timing::kMarks);
    absl::Status status = path.MarkTime();
    if (status.ok()) status = path.Barrier(sequences[0]);
    if (status.ok()) status = path.MarkTime();
    const DispatchInput in = {hidden.data(), topk_experts.data(), nullptr, kTokens};
    if (status.ok()) status = path.Dispatch(sequences[1], in, {}).status();
    if (status.ok()) status = path.MarkTime();
    if (status.ok()) status = path.Barrier(sequences[2]);
    if (status.ok()) status = path.MarkTime();
    return status.ok() ? path.Synchronize() : status;
  });
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
    EXPECT_THAT(group.path(rank).durations(), SizeIs(1));
    EXPECT_EQ(group.path(rank).operations_ended(), 1u);
  }
}

TEST_P(QueuedContractTest, AProbeCopiesRowsToTheSecondHalf) {
  RankGroup group(queueing_backends(), Options());
  const int64_t half = geometry_.logical_rows() / 2;
  const std::pair<CopyProbe, int64_t> probes[] = {{CopyProbe::kOwnShard, half},
                                                  {CopyProbe::kNextRank, half},
                                                  {CopyProbe::kOwnShard, half / 3 + 1},
                                                  {CopyProbe::kOwnShard, 0}};
  for (const auto& [probe, count] : probes) {
    std::vector<std::vector<BFloat16>> rows;
    for (int32_t rank = 0; rank < group.ranks(); ++rank) {
      rows.push_back(NormalNumbers(random_, group.ReadRows(rank).size(), 1.0));
      const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(rows[rank].data()),
                                             rows[rank].size() * sizeof(BFloat16));
      ASSERT_TRUE(group.backend(rank)
                      .CopyIn(reinterpret_cast<std::byte*>(group.path(rank).rows()), bytes)
                      .ok());
    }
    const Sequence sequence = group.NextSequence();
    ExpectOk(group.OnAll([&](int32_t rank) {
      absl::Status status = group.path(rank).ProbeCopy(probe, count);
      if (status.ok()) status = group.path(rank).Barrier(sequence);
      return status.ok() ? group.path(rank).Synchronize() : status;
    }));
    for (int32_t rank = 0; rank < group.ranks(); ++rank) {
      if (group.path(rank).queues()) {
        EXPECT_THAT(group.path(rank).durations(), SizeIs(2));
      }
      const int32_t to = probe == CopyProbe::kNextRank ? (rank + 1) % group.ranks() : rank;
      const std::vector<BFloat16> found = group.ReadRows(to);
      std::vector<BFloat16> expected = rows[to];
      std::copy_n(rows[rank].begin(), count * kShape.hidden,
                  expected.begin() + half * kShape.hidden);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                             [](BFloat16 a, BFloat16 b) { return a.bits == b.bits; }))
          << "rank " << rank;
    }
  }
  for (const int64_t count : {int64_t{-1}, half + 1}) {
    const absl::Status status = group.path(0).ProbeCopy(CopyProbe::kOwnShard, count);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("has ", count, " rows")));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, QueuedContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
