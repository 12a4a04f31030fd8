// Transport::kNccl against Transport::kNvlink: the same results, to the bit, of the same input; and
// how it ends where a rank does not come. What each result has to be is the rest of the suite's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/gradient_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

void ExpectSamePlan(const PlanTensors& a, const PlanTensors& b) {
  EXPECT_EQ(a.dst, b.dst);
  EXPECT_EQ(a.cu_seqlens, b.cu_seqlens);
  EXPECT_EQ(a.zero_fill_ranges, b.zero_fill_ranges);
  EXPECT_EQ(a.experts_to_copy, b.experts_to_copy);
  EXPECT_EQ(a.load, b.load);
  EXPECT_EQ(a.home_load, b.home_load);
  EXPECT_EQ(a.remote_stats, b.remote_stats);
  EXPECT_EQ(a.duplicate_groups, b.duplicate_groups);
  EXPECT_EQ(a.duplicate_rows, b.duplicate_rows);
}

class TransportTest : public testing::TestWithParam<TransportCase> {
 protected:
  TransportTest() : random_(TestSeed()) {
    for (int32_t device = 0; device < GetParam().devices; ++device) {
      direct_.push_back(GetParam().create(device));
      settled_.push_back(MakeSettledBackend(*direct_.back()));
      staged_.push_back(GetParam().create_staged(device));
    }
  }
  RankBackends nvlink() const { return InTurn(settled_, Transport::kNvlink); }
  RankBackends nccl() const { return InTurn(staged_, Transport::kNccl); }

  // With as many ranks as the case has, so that each of several devices has one.
  GroupInput NextGroup() {
    while (true) {
      GroupInput input = RandomGroup(random_);
      if (input.geometry.ranks > GetParam().max_ranks) continue;
      if (GetParam().devices > 1 && input.geometry.ranks < 2) continue;
      if (input.geometry.slots < input.geometry.experts_per_rank()) {
        input.geometry.slots = input.geometry.experts_per_rank();
      }
      return input;
    }
  }
  Geometry TwoRanks() const {
    return {.ranks = 2, .experts = 8, .tokens = 24, .topk = 3, .slots = 4, .token_padding = 8};
  }

  std::mt19937_64 random_;

 private:
  using Owned = std::vector<std::unique_ptr<Backend>>;  // by device
  static RankBackends InTurn(const Owned& backends, Transport transport) {
    std::vector<Backend*> in_turn;
    for (const auto& backend : backends) in_turn.push_back(backend.get());
    return RankBackends(in_turn, transport);
  }

  Owned direct_;
  Owned settled_;
  Owned staged_;
};

TEST(NcclContractTest, RunsWhereThereAreSeveralDevices) {
  for (const TransportCase& transport : TransportCases()) {
    if (transport.devices > 1) return;
  }
  GTEST_SKIP() << "NCCL has no two ranks on one device: PERIGEE_DEVICES=2 and more, where there "
                  "are as many";
}

TEST_P(TransportTest, RowsWeightsAndSumsHaveTheSameBits) {
  for (int i = 0; i < GetParam().random_groups && !HasFailure(); ++i) {
    const GroupInput input = NextGroup();
    SCOPED_TRACE(input.Describe());
    RankGroupOptions options;
    options.geometry = input.geometry;
    options.hidden = 8 * (1 + i % 5);
    RankGroup direct(nvlink(), options);
    RankGroup staged(nccl(), options);
    for (const Copy copy : {Copy::kCopied, Copy::kInPlace}) {
      std::vector<RankInput> inputs = NamedInputs(input, options.hidden, i);
      if (i % 3 == 0) inputs[0].route_weights.clear();  // one rank sends none
      std::vector<DispatchResult> expected = direct.Dispatch(inputs, copy);
      std::vector<DispatchResult> made = staged.Dispatch(inputs, copy);
      std::vector<std::vector<BFloat16>> rows;
      std::vector<std::vector<float>> weights;
      for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
        SCOPED_TRACE(testing::Message() << "rank " << rank);
        ASSERT_TRUE(expected[rank].status.ok()) << expected[rank].status;
        ASSERT_TRUE(made[rank].status.ok()) << made[rank].status;
        ExpectSamePlan(made[rank].tensors, expected[rank].tensors);
        EXPECT_TRUE(SameBits(made[rank].rows, expected[rank].rows));
        EXPECT_TRUE(SameBits(made[rank].row_weights, expected[rank].row_weights));
        rows.push_back(RandomNumbers(random_, made[rank].rows.size()));
        weights.push_back(RandomWeights(random_, made[rank].row_weights.size()));
      }
      if (i % 3 == 0 || i % 2 == 0) weights.clear();  // a rank has none, or none are wanted
      const auto sums = direct.Combine(expected, rows, weights, copy);
      const auto found = staged.Combine(made, rows, weights, copy);
      for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
        ASSERT_TRUE(sums[rank].status.ok()) << sums[rank].status;
        ASSERT_TRUE(found[rank].status.ok()) << found[rank].status;
        EXPECT_TRUE(SameBits(found[rank].hidden, sums[rank].hidden)) << "rank " << rank;
        EXPECT_TRUE(SameBits(found[rank].route_weights, sums[rank].route_weights));
      }
    }
  }
}

// What a layer leaves in the slots, in the rows and in the gradients, of all ranks.
struct LayerResult {
  std::vector<std::vector<BFloat16>> rows;
  std::vector<std::vector<BFloat16>> hidden;
  std::vector<ExpertBits> slots;
  std::vector<GradientValues> gradients;
};

LayerResult RunLayer(const RankBackends& on, const GroupInput& input,
                     const std::vector<ExpertBits>& experts,
                     const std::vector<GradientValues>& gradients, const WeightsShape& shape) {
  RankGroupOptions options;
  options.geometry = input.geometry;
  options.hidden = shape.hidden;
  options.intermediate = shape.intermediate;
  RankGroup group(on, options);
  ExpertStore store(on, input.geometry, shape, /*own_mappings=*/true);
  GradientStore sums(on, input.geometry, shape, /*own_mappings=*/true);
  store.Load(2, 9, experts);
  const int32_t ranks = input.geometry.ranks;
  for (int32_t rank = 0; rank < ranks; ++rank) sums.Write(rank, gradients[rank]);
  std::vector<RankInput> inputs = NamedInputs(input, shape.hidden, 1);
  std::mt19937_64 random(3);
  for (RankInput& rank : inputs) rank.hidden = NormalNumbers(random, rank.hidden.size(), 1.0);
  const std::vector<DispatchResult> made = group.Dispatch(inputs, Copy::kInPlace);
  const Sequence prefetch = group.NextSequence();
  const Sequence combine = group.NextSequence();
  const Sequence reduce = group.NextSequence();
  LayerResult result;
  result.rows.resize(ranks);
  result.hidden.resize(ranks);
  ExpectOk(group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const ExpertWeights weights = store.WeightsOf(rank, 2, 9);
    const DeviceArray<BFloat16> output(group.backend(rank), inputs[rank].hidden.size());
    absl::Status status = made[rank].status;
    if (status.ok()) status = path.PrefetchWeights(prefetch, made[rank].plan, weights);
    if (status.ok()) {
      status = path.RunExperts(made[rank].plan, weights, {path.rows(), nullptr, path.rows()});
    }
    if (status.ok()) result.rows[rank] = group.ReadRows(rank);
    if (status.ok()) {
      status = path.Combine(combine, made[rank].plan, {path.rows(), nullptr}, {output.data()});
    }
    if (status.ok()) {
      status = path.ReduceGradients(reduce, made[rank].plan, sums.GradientsOf(rank, 2));
    }
    result.hidden[rank] = output.Get();
    return status;
  }));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    for (int32_t slot = 0; slot < input.geometry.slots; ++slot) {
      const bool used = made[0].tensors.experts_to_copy[rank * input.geometry.slots + slot] >= 0;
      if (used) result.slots.push_back(store.slot(rank, slot));
    }
    result.gradients.push_back(sums.Read(rank));
  }
  return result;
}

TEST_P(TransportTest, ALayerAndItsGradientsHaveTheSameBits) {
  constexpr WeightsShape kShape = {64, 40};
  GroupInput input = PlainGroup(random_, TwoRanks());
  for (int32_t& expert : input.topk_experts) expert /= 2;  // rank 1 only helps
  std::vector<ExpertBits> experts;
  for (int32_t i = 0; i < input.geometry.experts; ++i) {
    const auto matrix = [&] { return NormalNumbers(random_, kShape.matrix_elements(), 0.1); };
    experts.push_back({matrix(), matrix(), matrix()});
  }
  std::vector<GradientValues> gradients(2);
  for (GradientValues& rank : gradients) {
    for (int kind = 0; kind < 3; ++kind) {
      rank.home[kind] = RandomWeights(random_, 4 * kShape.matrix_elements());
      rank.slots[kind] = RandomWeights(random_, 4 * kShape.matrix_elements());
    }
  }
  const LayerResult expected = RunLayer(nvlink(), input, experts, gradients, kShape);
  const LayerResult found = RunLayer(nccl(), input, experts, gradients, kShape);
  ASSERT_FALSE(expected.slots.empty());
  EXPECT_TRUE(found.slots == expected.slots);
  for (int32_t rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    EXPECT_TRUE(SameBits(found.rows[rank], expected.rows[rank]));
    EXPECT_TRUE(SameBits(found.hidden[rank], expected.hidden[rank]));
    for (int kind = 0; kind < 3; ++kind) {
      const GradientValues& a = found.gradients[rank];
      const GradientValues& b = expected.gradients[rank];
      EXPECT_TRUE(SameBits(a.home[kind], b.home[kind])) << "kind " << kind;
      EXPECT_TRUE(SameBits(a.slots[kind], b.slots[kind])) << "kind " << kind;
    }
  }
}

class TransportEndTest : public TransportTest {
 protected:
  void Start(absl::Duration operation_timeout) {
    RankGroupOptions options;
    options.geometry = TwoRanks();
    options.operation_timeout = operation_timeout;
    options.warmup_timeout = absl::Seconds(120);  // the first operation joins the ranks
    group_ = std::make_unique<RankGroup>(nccl(), options);
    ExpectOk(Barrier());
  }
  std::vector<absl::Status> Barrier() {
    const Sequence sequence = group_->NextSequence();
    return group_->OnAll([&](int32_t rank) { return group_->path(rank).Barrier(sequence); });
  }
  std::unique_ptr<RankGroup> group_;
};

TEST_P(TransportEndTest, AMissingRankIsNamedAtTheDeadline) {
  Start(absl::Milliseconds(50));
  const Sequence sequence = group_->NextSequence();
  const absl::Status status = group_->path(0).Barrier(sequence);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not arrive within 50ms"));
  const absl::Status next = group_->path(0).Barrier(sequence.Next());
  EXPECT_EQ(next.code(), absl::StatusCode::kUnavailable) << next;
}

TEST_P(TransportEndTest, AnAbortEndsTheWait) {
  Start(absl::Seconds(120));
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    if (rank == 0) return group_->path(0).Barrier(sequence);
    group_->path(0).Abort(1, "its process has ended");
    return absl::OkStatus();
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 1 is lost: its process has ended"));
}

TEST_P(TransportEndTest, RanksLeaveTogetherAndGoOn) {
  Start(absl::Seconds(120));
  const Sequence declined = group_->NextSequence();
  std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return rank == 1 ? group_->path(1).Decline(declined) : group_->path(0).Barrier(declined);
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 declined"));
  std::vector<RankInput> inputs = NamedInputs(PlainGroup(random_, TwoRanks()), 16, 1);
  const std::vector<RankInput> good = inputs;
  inputs[1].topk_experts[4] = 1000;
  for (const DispatchResult& result : group_->Dispatch(inputs, Copy::kCopied)) {
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument) << result.status;
    EXPECT_THAT(std::string(result.status.message()), HasSubstr("rank 1 token 1 k 1"));
  }
  for (const DispatchResult& result : group_->Dispatch(good, Copy::kCopied)) {
    EXPECT_TRUE(result.status.ok()) << result.status;
  }
}

TEST_P(TransportEndTest, ExpertsWithoutASlotAreRefused) {
  RankGroupOptions options;
  options.geometry = TwoRanks();
  options.geometry.slots = 3;
  group_ = std::make_unique<RankGroup>(nccl(), options);
  constexpr WeightsShape kShape = {16, 8};
  ExpertStore store(nccl(), options.geometry, kShape, /*own_mappings=*/true);
  const std::vector<DispatchResult> made =
      group_->Dispatch(NamedInputs(PlainGroup(random_, options.geometry), 16, 1), Copy::kInPlace);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(made[rank].status.ok()) << made[rank].status;
    DataPath& path = group_->path(rank);
    const absl::Status status = path.RunExperts(made[rank].plan, store.WeightsOf(rank, 0, 1),
                                                {path.rows(), nullptr, path.rows()});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("B = 3 slots per rank, expected at least E/R = 4"));
  }
}

std::string CaseName(const testing::TestParamInfo<TransportCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Transports, TransportTest, testing::ValuesIn(TransportCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Transports, TransportEndTest, testing::ValuesIn(TransportCases()),
                         CaseName);

}  // namespace
}  // namespace perigee
