// combine on every backend: sums in the stated order with the stated rounding, bit for bit, and
// when rows in the shard may be used in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

using RankRows = std::vector<std::vector<BFloat16>>;  // [R][NvS, H]
using RankWeights = std::vector<std::vector<float>>;  // [R][NvS]

class CombineContractTest : public ContractTest {
 protected:
  RankGroupOptions OptionsFor(const Geometry& geometry) {
    RankGroupOptions options;
    options.geometry = geometry;
    options.own_mappings = GetParam().own_mappings && geometry.ranks <= kMostOwnMappings;
    return options;
  }
};

RankRows RandomRows(std::mt19937_64& random, const RankGroup& group) {
  RankRows rows;
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    rows.push_back(RandomNumbers(random, group.geometry().logical_rows() * group.hidden()));
  }
  return rows;
}

RankWeights RandomRowWeights(std::mt19937_64& random, const RankGroup& group) {
  RankWeights weights;
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    weights.push_back(RandomWeights(random, group.geometry().logical_rows()));
  }
  return weights;
}

RankRows ExpectedHidden(const RankGroup& group, const ReferencePlan& plan, const RankRows& rows) {
  std::vector<std::vector<double>> values;
  for (const auto& rank : rows) values.push_back(ValuesOf(rank));
  RankRows expected;
  for (const auto& rank : CombineByTheRules(group.geometry(), group.hidden(), plan, values)) {
    expected.emplace_back();
    for (double value : rank) expected.back().push_back(Bits(value));
  }
  return expected;
}

std::vector<float> ExpectedWeights(const RankGroup& group, const ReferencePlan& plan, int32_t rank,
                                   const RankWeights& row_weights) {
  std::vector<float> expected;
  for (int64_t dst : plan.dst[rank]) {
    const int64_t raw = dst >= 0 ? dst : -dst - 1;
    const int64_t rows = group.geometry().logical_rows();
    expected.push_back(dst == INT32_MIN ? 0.0f : row_weights[raw / rows][raw % rows]);
  }
  return expected;
}

// Equal bits; NaN payloads aside.
void ExpectSameRows(const std::vector<BFloat16>& actual, const std::vector<BFloat16>& expected,
                    int32_t hidden) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(ToFloat(actual[i])) && std::isnan(ToFloat(expected[i]))) continue;
    ASSERT_EQ(actual[i], expected[i])
        << "token " << i / hidden << " column " << i % hidden << ": " << ToFloat(actual[i])
        << ", expected " << ToFloat(expected[i]);
  }
}

TEST_P(CombineContractTest, RandomGroups) {
  std::mt19937_64 random(TestSeed());
  const int groups = GetParam().random_groups;
  OnRandomGroups(random, groups, GetParam().max_ranks, [&](int i, const GroupInput& input) {
    RankGroup group(backends(), OptionsFor(input.geometry));
    const std::vector<DispatchResult> made =
        group.Dispatch(NamedInputs(input, group.hidden(), i), Copy::kInPlace);
    const ReferencePlan plan = PlanByTheRules(input);
    const RankRows rows = RandomRows(random, group);
    const RankWeights weights = RandomRowWeights(random, group);
    const RankRows expected = ExpectedHidden(group, plan, rows);
    // In place, then from other memory: the same bits, which also shows that both are repeatable.
    for (Copy copy : {Copy::kInPlace, Copy::kCopied}) {
      const std::vector<CombineResult> results = group.Combine(made, rows, weights, copy);
      for (int32_t rank = 0; rank < group.ranks(); ++rank) {
        SCOPED_TRACE(testing::Message() << "rank " << rank);
        ASSERT_TRUE(results[rank].status.ok()) << results[rank].status;
        ExpectSameRows(results[rank].hidden, expected[rank], group.hidden());
        EXPECT_EQ(results[rank].route_weights, ExpectedWeights(group, plan, rank, weights));
      }
    }
  });
}

// As a framework's backward does: the rows were dispatched without weights.
TEST_P(CombineContractTest, GathersWeightsThatTheCallerHasWritten) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input =
      PlainGroup(random, {.ranks = 3, .experts = 6, .tokens = 9, .topk = 3, .slots = 2});
  RankGroup group(backends(), OptionsFor(input.geometry));
  std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  for (RankInput& rank : inputs) rank.route_weights.clear();
  const std::vector<DispatchResult> made = group.Dispatch(inputs, Copy::kInPlace);
  const RankWeights weights = RandomRowWeights(random, group);
  std::vector<std::vector<float>> gathered(group.ranks());
  const Sequence sequence = group.NextSequence();
  ExpectOk(group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const auto* bytes = reinterpret_cast<const std::byte*>(weights[rank].data());
    absl::Status status =
        backend(rank).CopyIn(reinterpret_cast<std::byte*>(path.row_weights()),
                             absl::MakeConstSpan(bytes, weights[rank].size() * sizeof(float)));
    if (!status.ok()) return status;
    const DeviceArray<BFloat16> hidden(backend(rank), inputs[rank].hidden.size());
    const DeviceArray<float> route_weights(backend(rank), input.geometry.routes());
    const CombineOutput out{hidden.data(), route_weights.data()};
    const CombineInput dispatched{path.rows(), path.row_weights()};
    EXPECT_THAT(std::string(path.Combine(sequence, made[rank].plan, dispatched, out).message()),
                HasSubstr("the shard holds row weights of no plan"));
    status = path.Combine(sequence, made[rank].plan, {path.rows(), path.row_weights(), true}, out);
    gathered[rank] = route_weights.Get();
    return status;
  }));
  const ReferencePlan plan = PlanByTheRules(input);
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    EXPECT_EQ(gathered[rank], ExpectedWeights(group, plan, rank, weights));
  }
}

TEST_P(CombineContractTest, LargeRowsSharedByThreadsWithoutWeights) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input =
      PlainGroup(random, {.ranks = 3, .experts = 12, .tokens = 150, .topk = 6, .slots = 4});
  RankGroupOptions options = OptionsFor(input.geometry);
  options.hidden = 200;
  options.threads = 3;
  RankGroup group(backends(), options);
  const auto made = group.Dispatch(NamedInputs(input, options.hidden, 5), Copy::kCopied);
  const RankRows rows = RandomRows(random, group);
  const RankRows expected = ExpectedHidden(group, PlanByTheRules(input), rows);
  const std::vector<CombineResult> results = group.Combine(made, rows, {}, Copy::kCopied);
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    ASSERT_TRUE(results[rank].status.ok()) << results[rank].status;
    ExpectSameRows(results[rank].hidden, expected[rank], options.hidden);
  }
}

// The rounding of the local sum shows: without it some bits would differ.
TEST_P(CombineContractTest, TheReferenceWouldNoticeAnotherRounding) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input =
      PlainGroup(random, {.ranks = 2, .experts = 8, .tokens = 20, .topk = 5, .slots = 4});
  RankGroup group(backends(), OptionsFor(input.geometry));
  const ReferencePlan plan = PlanByTheRules(input);
  std::vector<std::vector<double>> values;
  for (const auto& rank : RandomRows(random, group)) values.push_back(ValuesOf(rank));
  EXPECT_NE(CombineByTheRules(input.geometry, group.hidden(), plan, values),
            CombineByTheRules(input.geometry, group.hidden(), plan, values, {.local_sum = false}));
}

// Dispatch and combine with nothing between them: a row that is NaN comes back NaN, and nothing
// else changes.
TEST_P(CombineContractTest, NanRowsStayWithTheirTokens) {
  std::mt19937_64 random(TestSeed());
  const GroupInput input =
      PlainGroup(random, {.ranks = 4, .experts = 8, .tokens = 9, .topk = 3, .slots = 2});
  RankGroup group(backends(), OptionsFor(input.geometry));
  std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  for (RankInput& rank : inputs) rank.hidden = RandomNumbers(random, rank.hidden.size());
  const auto round_trip = [&] {
    const auto made = group.Dispatch(inputs, Copy::kInPlace);
    RankRows rows;
    for (const DispatchResult& rank : made) rows.push_back(rank.rows);
    return group.Combine(made, rows, {}, Copy::kInPlace);
  };
  const std::vector<CombineResult> before = round_trip();
  const auto is_nan_token = [](int32_t rank, int32_t token) { return (rank + token) % 4 == 0; };
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    for (int32_t token = 0; token < input.geometry.tokens; ++token) {
      if (!is_nan_token(rank, token)) continue;
      std::fill_n(inputs[rank].hidden.begin() + token * group.hidden(), group.hidden(),
                  BFloat16{0x7fc1});
    }
  }
  const std::vector<CombineResult> after = round_trip();
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    for (size_t i = 0; i < after[rank].hidden.size(); ++i) {
      if (is_nan_token(rank, static_cast<int32_t>(i) / group.hidden())) {
        EXPECT_TRUE(std::isnan(ToFloat(after[rank].hidden[i])));
      } else {
        EXPECT_EQ(after[rank].hidden[i], before[rank].hidden[i]);
      }
    }
  }
}

// Refused operations leave no trace: the same sequence can be used again.
class CombineRefusalTest : public CombineContractTest {
 protected:
  CombineRefusalTest() : group_(backends(), OptionsFor(kGeometry)) {
    std::mt19937_64 random(TestSeed());
    input_ = PlainGroup(random, kGeometry);
    made_ = group_.Dispatch(NamedInputs(input_, group_.hidden(), 1), Copy::kInPlace);
  }

  // Combines in place without weights on every rank.
  std::vector<absl::Status> CombineInPlace(Sequence sequence) {
    return group_.OnAll([&](int32_t rank) {
      const DeviceArray<BFloat16> hidden(backend(rank), size_t{kGeometry.tokens} * group_.hidden());
      return group_.path(rank).Combine(sequence, made_[rank].plan,
                                       {group_.path(rank).rows(), nullptr}, {hidden.data()});
    });
  }
  // What each rank's call returns must be INVALID_ARGUMENT with `text`, and not an abort.
  void ExpectRefused(const std::vector<absl::Status>& statuses, const std::string& text) {
    for (int32_t rank = 0; rank < group_.ranks(); ++rank) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
      EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr(text));
      EXPECT_FALSE(group_.path(rank).last_error().has_value());
    }
  }

  static constexpr Geometry kGeometry = {
      .ranks = 2, .experts = 4, .tokens = 5, .topk = 2, .slots = 2, .token_padding = 4};
  RankGroup group_;
  GroupInput input_;
  std::vector<DispatchResult> made_;
};

TEST_P(CombineRefusalTest, RowsInPlaceAreConsumed) {
  ExpectOk(CombineInPlace(group_.NextSequence()));
  const Sequence sequence = group_.NextSequence();
  ExpectRefused(CombineInPlace(sequence), "the shard holds rows of no plan");
  ExpectOk(group_.OnAll([&](int32_t rank) { return group_.path(rank).Barrier(sequence); }));
}

TEST_P(CombineRefusalTest, RowsInPlaceDieWithTheNextDispatch) {
  const auto latest = group_.Dispatch(NamedInputs(input_, group_.hidden(), 2), Copy::kInPlace);
  const Sequence sequence = group_.NextSequence();
  ExpectRefused(CombineInPlace(sequence),
                "the shard holds rows of the plan of sequence 2, expected the plan of sequence 1");
  made_ = latest;
  ExpectOk(CombineInPlace(sequence));
}

TEST_P(CombineRefusalTest, ASavedPlanMakesRowsLiveAgain) {
  ExpectOk(CombineInPlace(group_.NextSequence()));
  const std::vector<RankInput> inputs = NamedInputs(input_, group_.hidden(), 3);
  made_ = group_.DispatchWithPlan(made_, inputs, Copy::kInPlace);
  ExpectOk(CombineInPlace(group_.NextSequence()));
}

TEST_P(CombineRefusalTest, PartOfTheShardIsNoAlias) {
  const Sequence sequence = group_.NextSequence();
  ExpectRefused(group_.OnAll([&](int32_t rank) {
    const DeviceArray<BFloat16> hidden(backend(rank), size_t{kGeometry.tokens} * group_.hidden());
    const BFloat16* inside = group_.path(rank).rows() + group_.hidden();
    return group_.path(rank).Combine(sequence, made_[rank].plan, {inside, nullptr},
                                     {hidden.data()});
  }),
                "rows lies in the shard");
}

TEST_P(CombineRefusalTest, NullPointersAndHalfTheWeights) {
  const Sequence sequence = group_.NextSequence();
  const auto combine = [&](bool rows, bool row_weights, bool hidden, bool route_weights) {
    return group_.OnAll([&, rows, row_weights, hidden, route_weights](int32_t rank) {
      const DeviceArray<BFloat16> out(backend(rank), size_t{kGeometry.tokens} * group_.hidden());
      const DeviceArray<float> out_weights(backend(rank), kGeometry.routes());
      DataPath& path = group_.path(rank);
      return path.Combine(
          sequence, made_[rank].plan,
          {rows ? path.rows() : nullptr, row_weights ? path.row_weights() : nullptr},
          {hidden ? out.data() : nullptr, route_weights ? out_weights.data() : nullptr});
    });
  };
  ExpectRefused(combine(false, false, true, false), "rows is null");
  ExpectRefused(combine(true, false, false, false), "output hidden is null");
  ExpectRefused(combine(true, true, true, false), "one is null, expected both or none");
  ExpectRefused(combine(true, false, true, true), "one is null, expected both or none");
  ExpectOk(combine(true, true, true, true));
}

TEST_P(CombineRefusalTest, PlansOfOthersAreRefused) {
  const Sequence sequence = group_.NextSequence();
  const auto combine = [&](const PlanPtr& plan) {
    const DeviceArray<BFloat16> hidden(backend(0), size_t{kGeometry.tokens} * group_.hidden());
    DataPath& path = group_.path(0);
    return path.Combine(sequence, plan, {path.rows(), nullptr}, {hidden.data()});
  };
  EXPECT_EQ(combine(nullptr).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status other_rank = combine(made_[1].plan);
  EXPECT_EQ(other_rank.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other_rank.message()), HasSubstr("plan is of rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Backends, CombineContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);
INSTANTIATE_TEST_SUITE_P(Backends, CombineRefusalTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
