// dispatch on every backend: the plan by the rules, rows bit for bit, weights, padding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

template <typename T>
std::vector<int32_t> Flat(const T& rows) {
  std::vector<int32_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

RankGroupOptions OptionsFor(const Geometry& geometry, const ContractCase& contract) {
  RankGroupOptions options;
  options.geometry = geometry;
  options.own_mappings = contract.own_mappings && geometry.ranks <= kMostOwnMappings;
  return options;
}

void ExpectPlan(const PlanTensors& tensors, const ReferencePlan& expected, int32_t rank) {
  EXPECT_EQ(tensors.dst, expected.dst[rank]);
  EXPECT_EQ(tensors.cu_seqlens, expected.cu_seqlens[rank]);
  EXPECT_EQ(tensors.zero_fill_ranges, Flat(expected.zero_fill[rank]));
  EXPECT_EQ(tensors.experts_to_copy, Flat(expected.experts_to_copy));
  EXPECT_EQ(tensors.remote_stats, expected.remote_stats[rank]);
  EXPECT_EQ(tensors.duplicate_groups, Flat(expected.duplicate_groups[rank]));
  EXPECT_EQ(tensors.duplicate_rows, expected.duplicate_rows[rank]);
  std::vector<int32_t> load(tensors.load.size(), 0);
  for (const auto& row : expected.alloc) {
    for (size_t d = 0; d < row.size(); ++d) load[d] += row[d];
  }
  EXPECT_EQ(tensors.load, load);
}

// What the shard of `rank` holds, row by row. weights_sent: whether row weights are those of the
// inputs, or the poison that lay there before.
void ExpectRows(const DispatchResult& result, const std::vector<RowSource>& sources,
                const std::vector<RankInput>& inputs, int32_t hidden, bool weights_sent = true) {
  const std::vector<BFloat16> zeros(hidden);
  for (size_t row = 0; row < sources.size(); ++row) {
    const RowSource& source = sources[row];
    if (source.kind == RowSource::Kind::kUndefined) continue;
    const bool is_route = source.kind == RowSource::Kind::kRoute;
    const BFloat16* expected =
        is_route ? &inputs[source.rank].hidden[static_cast<size_t>(source.token) * hidden]
                 : zeros.data();
    ASSERT_TRUE(std::equal(expected, expected + hidden, &result.rows[row * hidden]))
        << "row " << row << ": rank " << source.rank << " token " << source.token;
    if (!is_route) {
      ASSERT_EQ(result.row_weights[row], 0.0f) << "row " << row;
    } else if (weights_sent) {
      const int32_t topk = static_cast<int32_t>(inputs[source.rank].route_weights.size() * hidden /
                                                inputs[source.rank].hidden.size());
      ASSERT_EQ(result.row_weights[row],
                inputs[source.rank].route_weights[source.token * topk + source.k])
          << "row " << row;
    }
  }
}

void ExpectDispatched(const std::vector<DispatchResult>& results, const GroupInput& group,
                      const std::vector<RankInput>& inputs, int32_t hidden) {
  const ReferencePlan expected = PlanByTheRules(group);
  for (int32_t rank = 0; rank < group.geometry.ranks; ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    ASSERT_TRUE(results[rank].status.ok()) << results[rank].status;
    ExpectPlan(results[rank].tensors, expected, rank);
    ExpectRows(results[rank], RowSourcesOf(group.geometry, expected, rank), inputs, hidden);
  }
}

class DispatchContractTest : public ContractTest {};

TEST_P(DispatchContractTest, RandomGroups) {
  std::mt19937_64 random(TestSeed());
  const int groups = GetParam().random_groups;
  OnRandomGroups(random, groups, GetParam().max_ranks, [&](int i, GroupInput input) {
    RankGroup group(backends(), OptionsFor(input.geometry, GetParam()));
    // Twice with other routes: what the first has left in the shard must not matter.
    for (Copy copy : {Copy::kCopied, Copy::kInPlace}) {
      const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), i);
      const std::vector<DispatchResult> made = group.Dispatch(inputs, copy);
      ExpectDispatched(made, input, inputs, group.hidden());
      const std::vector<RankInput> others = NamedInputs(input, group.hidden(), ~i);
      ExpectDispatched(group.DispatchWithPlan(made, others, copy), input, others, group.hidden());
      for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
        const auto routes =
            input.topk_experts.begin() + static_cast<size_t>(rank) * input.geometry.routes();
        std::shuffle(routes, routes + input.token_counts[rank] * input.geometry.topk, random);
      }
    }
  });
}

TEST_P(DispatchContractTest, GoldenVectorsOfTheRules) {
  GroupInput g1;
  g1.geometry = {.ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
  g1.topk_experts = {0, 1, 0, 2, 1, 0, /**/ 0, 3, 1, 0, 2, 0};
  g1.token_counts = {3, 3};
  RankGroup group(backends(), OptionsFor(g1.geometry, GetParam()));
  const std::vector<DispatchResult> results =
      group.Dispatch(NamedInputs(g1, group.hidden(), 1), Copy::kCopied);
  ASSERT_TRUE(results[0].status.ok() && results[1].status.ok());
  EXPECT_EQ(results[0].tensors.dst, (std::vector<int32_t>{0, -5, 1, 18, 5, -3}));
  EXPECT_EQ(results[1].tensors.dst, (std::vector<int32_t>{26, -23, 6, 27, 19, -29}));
  EXPECT_EQ(results[0].tensors.cu_seqlens, (std::vector<int32_t>{4, 8, 8, 8, 8, 8}));
  EXPECT_EQ(results[1].tensors.cu_seqlens, (std::vector<int32_t>{0, 0, 4, 8, 12, 12}));
  EXPECT_EQ(results[1].tensors.experts_to_copy, (std::vector<int32_t>{-1, -1, 0, -1}));
  EXPECT_EQ(results[0].tensors.remote_stats, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(results[1].tensors.remote_stats, (std::vector<int32_t>{1, 0}));
}

TEST_P(DispatchContractTest, LargeRowsSharedByThreads) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input =
      PlainGroup(random, {.ranks = 3, .experts = 12, .tokens = 200, .topk = 5, .slots = 4});
  RankGroupOptions options = OptionsFor(input.geometry, GetParam());
  options.hidden = 520;
  options.threads = 3;
  RankGroup group(backends(), options);
  const std::vector<RankInput> inputs = NamedInputs(input, options.hidden, 5);
  ExpectDispatched(group.Dispatch(inputs, Copy::kCopied), input, inputs, options.hidden);
}

// More than a GPU plans with in the shared memory of a block (kernels/cuda/planning_scratch.h).
TEST_P(DispatchContractTest, ManyExperts) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input = PlainGroup(
      random,
      {.ranks = 4, .experts = 4800, .tokens = 70, .topk = 6, .slots = 5, .token_padding = 4});
  RankGroup group(backends(), OptionsFor(input.geometry, GetParam()));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 7);
  const std::vector<DispatchResult> made = group.Dispatch(inputs, Copy::kCopied);
  ExpectDispatched(made, input, inputs, group.hidden());
  const std::vector<RankInput> others = NamedInputs(input, group.hidden(), 8);
  ExpectDispatched(group.DispatchWithPlan(made, others, Copy::kInPlace), input, others,
                   group.hidden());
}

struct EdgeCase {
  const char* name;
  Geometry geometry;
  std::vector<int32_t> token_counts;
  int32_t expert;  // of every route; -2: the routes differ
};

TEST_P(DispatchContractTest, EdgesOfTheInput) {
  const std::vector<EdgeCase> cases = {
      {"no tokens on some ranks", {3, 6, 4, 2, 2, 8}, {4, 0, 2}, -2},
      {"no tokens at all", {3, 6, 4, 2, 2, 8}, {0, 0, 0}, -2},
      {"room for no tokens", {2, 4, 0, 2, 2, 8}, {0, 0}, -2},
      {"all on one expert", {4, 8, 5, 3, 2, 4}, {5, 5, 5, 5}, 6},
      {"all masked", {4, 8, 5, 3, 2, 4}, {5, 5, 5, 5}, -1},
      {"one rank", {1, 4, 6, 2, 4, 4}, {6}, -2},
      {"five ranks, no slots, no padding", {5, 5, 7, 3, 0, 1}, {7, 7, 7, 7, 7}, -2},
      {"more slots than experts at home", {2, 4, 7, 3, 9, 16}, {7, 7}, -2},
  };
  std::mt19937_64 random(TestSeed());
  for (const EdgeCase& edge : cases) {
    SCOPED_TRACE(edge.name);
    GroupInput input = PlainGroup(random, edge.geometry);
    input.token_counts = edge.token_counts;
    if (edge.expert != -2) {
      std::fill(input.topk_experts.begin(), input.topk_experts.end(), edge.expert);
    }
    RankGroup group(backends(), OptionsFor(edge.geometry, GetParam()));
    const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 9);
    ExpectDispatched(group.Dispatch(inputs, Copy::kCopied), input, inputs, group.hidden());
  }
}

TEST_P(DispatchContractTest, WithoutWeightsRowWeightsAreNotWritten) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input = PlainGroup(
      random, {.ranks = 2, .experts = 4, .tokens = 6, .topk = 2, .slots = 2, .token_padding = 4});
  RankGroup group(backends(), OptionsFor(input.geometry, GetParam()));
  std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  for (RankInput& rank : inputs) rank.route_weights.clear();
  const std::vector<DispatchResult> results = group.Dispatch(inputs, Copy::kInPlace);
  const ReferencePlan plan = PlanByTheRules(input);
  float poison;
  std::memset(&poison, static_cast<int>(kPoison), sizeof(poison));
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(results[rank].status.ok()) << results[rank].status;
    const std::vector<RowSource> sources = RowSourcesOf(input.geometry, plan, rank);
    ExpectRows(results[rank], sources, inputs, group.hidden(), /*weights_sent=*/false);
    for (size_t row = 0; row < sources.size(); ++row) {
      if (sources[row].kind != RowSource::Kind::kRoute) continue;
      EXPECT_EQ(results[rank].row_weights[row], poison);
    }
  }
}

TEST_P(DispatchContractTest, ARankWithoutTokensNeedsNoInput) {
  std::mt19937_64 random(TestSeed());
  GroupInput input = PlainGroup(random, {.ranks = 2, .experts = 4, .tokens = 6, .topk = 2});
  input.token_counts = {6, 0};
  RankGroup group(backends(), OptionsFor(input.geometry, GetParam()));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  const Sequence sequence = group.NextSequence();
  ExpectOk(group.OnAll([&](int32_t rank) {
    const DeviceArray<BFloat16> hidden(backend(rank), inputs[0].hidden);
    const DeviceArray<int32_t> topk_experts(backend(rank), inputs[0].topk_experts);
    const DispatchInput in =
        rank == 0 ? DispatchInput{hidden.data(), topk_experts.data(), nullptr, 6} : DispatchInput{};
    return group.path(rank).Dispatch(sequence, in, {}).status();
  }));
}

// A plan outlives other plans, and its handle may be copied and dropped anywhere.
TEST_P(DispatchContractTest, PlansAreIndependent) {
  std::mt19937_64 random(TestSeed());
  const Geometry geometry = {.ranks = 4, .experts = 8, .tokens = 5, .topk = 3, .slots = 2};
  const GroupInput first = PlainGroup(random, geometry);
  const GroupInput second = PlainGroup(random, geometry);
  RankGroup group(backends(), OptionsFor(geometry, GetParam()));
  const std::vector<RankInput> inputs = NamedInputs(first, group.hidden(), 1);
  const std::vector<DispatchResult> made = group.Dispatch(inputs, Copy::kCopied);
  { const auto dropped = group.Dispatch(NamedInputs(second, group.hidden(), 2), Copy::kCopied); }
  EXPECT_EQ(made[0].plan->tag(), (ObjectTag{BufferId(3), Generation(7), Sequence(1)}));
  ExpectDispatched(group.DispatchWithPlan(made, inputs, Copy::kInPlace), first, inputs,
                   group.hidden());
}

INSTANTIATE_TEST_SUITE_P(Backends, DispatchContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
