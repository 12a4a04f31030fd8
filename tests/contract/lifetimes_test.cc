// What may be used with what, on every backend: plans belong to one buffer and generation, and how
// many slots there are changes no bit of a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/layout/shard_layout.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/gradient_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr WeightsShape kWeights = {16, 8};

class LifetimesContractTest : public ContractTest {
 protected:
  LifetimesContractTest() : random_(TestSeed()) {}

  // A group of one rank with a plan that its first dispatch has made.
  struct Alone {
    std::unique_ptr<Memory> shard;
    std::unique_ptr<DataPath> path;
    PlanPtr plan;
  };
  static constexpr Geometry kAlone = {
      .ranks = 1, .experts = 2, .tokens = 4, .topk = 1, .slots = 2, .token_padding = 1};
  Alone MakeAlone(uint64_t buffer, uint64_t generation, const Geometry& geometry) {
    Alone made;
    DataPathOptions options;
    options.geometry = geometry;
    options.hidden = kWeights.hidden;
    options.buffer = BufferId(buffer);
    options.generation = Generation(generation);
    auto shard = backend(0).AllocateShared(ShardLayout::Create(geometry, options.hidden).size_bytes,
                                           PeerAccess::kReadWrite);
    EXPECT_TRUE(shard.ok()) << shard.status();
    made.shard = *std::move(shard);
    options.shards = {made.shard->data()};
    auto path = backend(0).CreateDataPath(options);
    EXPECT_TRUE(path.ok()) << path.status();
    made.path = *std::move(path);
    const auto input = Input(geometry);
    auto plan = made.path->Dispatch(Sequence(1), input.dispatch(geometry.tokens), {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    made.plan = *std::move(plan);
    return made;
  }

  struct OneInput {
    DeviceArray<BFloat16> hidden;
    DeviceArray<int32_t> topk_experts;
    DispatchInput dispatch(int32_t tokens) const {
      return {hidden.data(), topk_experts.data(), nullptr, tokens};
    }
  };
  OneInput Input(const Geometry& geometry) {
    const RankInput input = NamedInputs(PlainGroup(random_, geometry), kWeights.hidden, 1)[0];
    return {DeviceArray<BFloat16>(backend(0), input.hidden),
            DeviceArray<int32_t>(backend(0), input.topk_experts)};
  }

  // Of all ranks, through a layer with so many slots.
  std::vector<std::vector<BFloat16>> RunLayer(const GroupInput& group, int32_t slots,
                                              const std::vector<ExpertBits>& experts,
                                              const std::vector<RankInput>& inputs);

  std::mt19937_64 random_;
};

// By table: whose plan it is, and in which operation it is used.
TEST_P(LifetimesContractTest, PlansOfAnotherBufferShapeOrGenerationAreRefused) {
  const Alone own = MakeAlone(3, 7, kAlone);
  Geometry larger = kAlone;
  larger.tokens = 9;
  const std::pair<const char*, Alone> others[] = {
      {"buffer 4, generation 7", MakeAlone(4, 7, kAlone)},
      {"buffer 3, generation 6", MakeAlone(3, 6, kAlone)},
      {"buffer 5, generation 7", MakeAlone(5, 7, larger)},
  };
  const ExpertStore store(backends(), kAlone, kWeights, /*own_mappings=*/false);
  const GradientStore gradients(backends(), kAlone, kWeights, /*own_mappings=*/false);
  const ExpertWeights weights = store.WeightsOf(0, 0, 1);
  const OneInput input = Input(kAlone);
  const DeviceArray<BFloat16> output(backend(0), size_t{64} * kWeights.hidden);
  DataPath& path = *own.path;
  const Sequence next(2);
  const std::pair<const char*, std::function<absl::Status(const PlanPtr&)>> uses[] = {
      {"dispatch",
       [&](const PlanPtr& plan) {
         return path.DispatchWithPlan(next, plan, input.dispatch(kAlone.tokens), {});
       }},
      {"prefetch", [&](const PlanPtr& plan) { return path.PrefetchWeights(next, plan, weights); }},
      {"run_experts",
       [&](const PlanPtr& plan) {
         return path.RunExperts(plan, weights, {path.rows(), nullptr, output.data()});
       }},
      {"combine",
       [&](const PlanPtr& plan) {
         return path.Combine(next, plan, {path.rows(), nullptr}, {output.data(), nullptr});
       }},
      {"reduce_gradients",
       [&](const PlanPtr& plan) {
         return path.ReduceGradients(next, plan, gradients.GradientsOf(0, 0));
       }},
      {"read", [&](const PlanPtr& plan) { return path.ReadPlan(plan).status(); }},
  };
  for (const auto& [identity, other] : others) {
    for (const auto& [operation, use] : uses) {
      SCOPED_TRACE(absl::StrCat(operation, " with a plan of ", identity));
      const absl::Status status = use(other.plan);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("plan is of rank 0, ", identity)),
                        HasSubstr("expected one of rank 0, buffer 3, generation 7")));
      EXPECT_FALSE(path.last_error().has_value());
    }
  }
  // Nothing was touched, and its own plan lives: the combine takes the rows of the dispatch.
  EXPECT_TRUE(uses[3].second(own.plan).ok());
}

std::vector<std::vector<BFloat16>> LifetimesContractTest::RunLayer(
    const GroupInput& group_input, int32_t slots, const std::vector<ExpertBits>& experts,
    const std::vector<RankInput>& inputs) {
  RankGroupOptions options;
  options.geometry = group_input.geometry;
  options.geometry.slots = slots;
  options.hidden = static_cast<int32_t>(inputs[0].hidden.size() / options.geometry.tokens);
  options.own_mappings = GetParam().own_mappings;
  RankGroup group(backends(), options);
  const WeightsShape shape = {options.hidden,
                              static_cast<int32_t>(experts[0].gate.size()) / options.hidden};
  ExpertStore store(backends(), options.geometry, shape, options.own_mappings);
  store.Load(0, 1, experts);
  const std::vector<DispatchResult> made = group.Dispatch(inputs, Copy::kInPlace);
  const Sequence prefetch = group.NextSequence();
  const Sequence combine = group.NextSequence();
  std::vector<std::vector<BFloat16>> hidden(options.geometry.ranks);
  ExpectOk(group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const PlanPtr& plan = made[rank].plan;
    const ExpertWeights weights = store.WeightsOf(rank, 0, 1);
    const DeviceArray<BFloat16> output(backend(rank), inputs[rank].hidden.size());
    absl::Status status = path.PrefetchWeights(prefetch, plan, weights);
    if (status.ok()) {
      status = path.RunExperts(plan, weights, {path.rows(), path.row_weights(), path.rows()});
    }
    if (status.ok()) {
      status = path.Combine(combine, plan, {path.rows(), nullptr}, {output.data(), nullptr});
    }
    hidden[rank] = output.Get();
    return status;
  }));
  return hidden;
}

// Experts without a slot are computed from their home's weights, in place.
TEST_P(LifetimesContractTest, FewerSlotsChangeNoBit) {
  const Geometry geometry = {
      .ranks = 4, .experts = 12, .tokens = 40, .topk = 3, .slots = 3, .token_padding = 8};
  GroupInput group = PlainGroup(random_, geometry);
  for (int32_t& expert : group.topk_experts) expert /= 2;  // the last ranks only help
  constexpr WeightsShape kShape = {24, 40};
  std::vector<ExpertBits> experts;
  for (int32_t i = 0; i < geometry.experts; ++i) {
    const auto matrix = [&](int32_t depth) {
      return NormalNumbers(random_, kShape.matrix_elements(), 1.0 / std::sqrt(depth));
    };
    experts.push_back({matrix(kShape.hidden), matrix(kShape.hidden), matrix(kShape.intermediate)});
  }
  std::vector<RankInput> inputs = NamedInputs(group, kShape.hidden, 1);
  for (RankInput& rank : inputs) {
    rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
    rank.route_weights = RandomWeights(random_, rank.route_weights.size());
  }
  const auto expected = RunLayer(group, 3, experts, inputs);
  for (int32_t slots : GetParam().SlotsToRun({0, 1, 2, 5}, 3)) {
    EXPECT_TRUE(RunLayer(group, slots, experts, inputs) == expected) << slots << " slots";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LifetimesContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
