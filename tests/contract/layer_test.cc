// One whole trained layer on every backend: dispatch, prefetch, experts, combine, against what
// another framework computed in fp64 and against a reference that rounds where the rules round.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/plan/reference.h"
#include "proto/support/tensor_file.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

constexpr char kPath[] = "tests/testdata/moe_layer_e64_k8.safetensors";
// The second bound sees a rounding that is missing or in the wrong place, the first does not.
constexpr double kBoundToExact = 5e-3;
constexpr double kBoundToRules = 2e-4;
constexpr int32_t kRanks = 8;
constexpr int32_t kTokens = 256;
constexpr int32_t kTopk = 8;
constexpr int32_t kExperts = 64;
constexpr WeightsShape kShape = {256, 64};

struct Layer {
  GroupInput group;
  std::vector<RankInput> inputs;    // [R]
  std::vector<ExpertBits> experts;  // [E]
  std::vector<double> expected;     // [R, S, H]
};

template <typename T>
std::vector<T> Read(const TensorFile& file, const std::string& name, size_t size) {
  std::vector<T> values(size);
  const absl::StatusOr<const TensorInfo*> info = file.Get(name);
  EXPECT_TRUE(info.ok()) << info.status();
  if (!info.ok()) return values;
  const absl::Span<const std::byte> bytes = file.data(**info);
  EXPECT_EQ(bytes.size(), size * sizeof(T)) << name;
  if (bytes.size() == size * sizeof(T)) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename T>
std::vector<T> Part(const std::vector<T>& all, size_t index, size_t size) {
  return std::vector<T>(all.begin() + index * size, all.begin() + (index + 1) * size);
}

Layer ReadLayer(int32_t slots) {
  Layer layer;
  const absl::StatusOr<TensorFile> file = TensorFile::Open(kPath);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return layer;
  layer.group.geometry = {
      .ranks = kRanks, .experts = kExperts, .tokens = kTokens, .topk = kTopk, .slots = slots};
  layer.group.token_counts.assign(kRanks, kTokens);
  const size_t rows = size_t{kRanks} * kTokens;
  const auto hidden = Read<BFloat16>(*file, "hidden", rows * kShape.hidden);
  layer.group.topk_experts = Read<int32_t>(*file, "topk_experts", rows * kTopk);
  const auto route_weights = Read<float>(*file, "route_weights", rows * kTopk);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    layer.inputs.push_back({Part(hidden, rank, size_t{kTokens} * kShape.hidden),
                            Part(layer.group.topk_experts, rank, size_t{kTokens} * kTopk),
                            Part(route_weights, rank, size_t{kTokens} * kTopk), kTokens});
  }
  const size_t elements = kShape.matrix_elements();
  const auto gate = Read<BFloat16>(*file, "gate", kExperts * elements);
  const auto up = Read<BFloat16>(*file, "up", kExperts * elements);
  const auto down = Read<BFloat16>(*file, "down", kExperts * elements);
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    layer.experts.push_back(
        {Part(gate, expert, elements), Part(up, expert, elements), Part(down, expert, elements)});
  }
  for (float value : Read<float>(*file, "expected_output", rows * kShape.hidden)) {
    layer.expected.push_back(value);
  }
  return layer;
}

// The layer's output [R, S, H] by the rules.
std::vector<double> RunByTheRules(const Layer& layer, const Rounding& rounding) {
  const ReferencePlan plan = PlanByTheRules(layer.group);
  std::vector<ExpertValues> experts;
  for (const ExpertBits& expert : layer.experts) experts.push_back(ValuesOf(expert));
  std::vector<std::vector<double>> rows(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    rows[rank].resize(layer.group.geometry.logical_rows() * kShape.hidden);
    const std::vector<RowSource> sources = RowSourcesOf(layer.group.geometry, plan, rank);
    for (size_t row = 0; row < sources.size(); ++row) {
      const RowSource& source = sources[row];
      if (source.kind != RowSource::Kind::kRoute) continue;
      const RankInput& input = layer.inputs[source.rank];
      const size_t route = size_t{static_cast<uint32_t>(source.token)} * kTopk + source.k;
      const std::vector<double> output = RunExpertByTheRules(
          ValuesOf(Part(input.hidden, source.token, kShape.hidden)),
          experts[input.topk_experts[route]], input.route_weights[route], rounding);
      std::copy(output.begin(), output.end(), rows[rank].begin() + row * kShape.hidden);
    }
  }
  std::vector<double> all;
  for (const auto& rank :
       CombineByTheRules(layer.group.geometry, kShape.hidden, plan, rows, rounding)) {
    all.insert(all.end(), rank.begin(), rank.end());
  }
  return all;
}

// Slots change where weights are read, and no result: one reference serves all.
const std::vector<double>& ByTheRules() {
  static const auto* result = new std::vector<double>(RunByTheRules(ReadLayer(8), {}));
  return *result;
}

class LayerContractTest : public ContractTest {
 protected:
  // The layer's output [R, S, H] by the backend, everything in place.
  std::vector<double> Run(const Layer& layer) {
    RankGroupOptions options;
    options.geometry = layer.group.geometry;
    options.hidden = kShape.hidden;
    options.intermediate = kShape.intermediate;
    options.own_mappings = GetParam().own_mappings;
    RankGroup group(backends(), options);
    ExpertStore store(backends(), options.geometry, kShape, options.own_mappings);
    store.Load(0, 1, layer.experts);
    const std::vector<DispatchResult> made = group.Dispatch(layer.inputs, Copy::kInPlace);
    const Sequence prefetch = group.NextSequence();
    const Sequence combine = group.NextSequence();
    std::vector<std::vector<BFloat16>> outputs(kRanks);
    ExpectOk(group.OnAll([&](int32_t rank) {
      DataPath& path = group.path(rank);
      const PlanPtr& plan = made[rank].plan;
      const ExpertWeights weights = store.WeightsOf(rank, 0, 1);
      const DeviceArray<BFloat16> hidden(backend(rank), size_t{kTokens} * kShape.hidden);
      absl::Status status = made[rank].status;
      if (status.ok()) status = path.PrefetchWeights(prefetch, plan, weights);
      if (status.ok()) {
        status = path.RunExperts(plan, weights, {path.rows(), path.row_weights(), path.rows()});
      }
      if (status.ok()) {
        status = path.Combine(combine, plan, {path.rows(), nullptr}, {hidden.data(), nullptr});
      }
      outputs[rank] = hidden.Get();
      return status;
    }));
    std::vector<double> all;
    for (const auto& rank : outputs) {
      const std::vector<double> values = ValuesOf(rank);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST_P(LayerContractTest, AgreesWithTheFileAndWithTheRules) {
  for (int32_t slots : GetParam().SlotsToRun({8, 3}, 8)) {
    SCOPED_TRACE(testing::Message() << slots << " slots");
    const Layer layer = ReadLayer(slots);
    ASSERT_FALSE(HasFailure());
    const std::vector<double> output = Run(layer);
    const double to_exact = RelativeError(output, layer.expected);
    const double to_rules = RelativeError(output, ByTheRules());
    std::printf("relative error: %.3g to the file, %.3g to the rules\n", to_exact, to_rules);
    EXPECT_LE(to_exact, kBoundToExact);
    EXPECT_LE(to_rules, kBoundToRules);
    EXPECT_EQ(output, Run(layer)) << "the second run gave other bits";
  }
}

// Each rounding that the rules ask for is seen by the bound to the rules: leaving it out costs
// more.
TEST(LayerReferenceTest, TheBoundNoticesEveryRounding) {
  const Layer layer = ReadLayer(8);
  ASSERT_FALSE(HasFailure());
  const std::vector<double>& by_the_rules = ByTheRules();
  EXPECT_LE(RelativeError(by_the_rules, layer.expected), kBoundToExact);
  for (const Rounding& other : {Rounding{.expert_hidden = false}, Rounding{.expert_output = false},
                                Rounding{.local_sum = false}}) {
    const double error = RelativeError(RunByTheRules(layer, other), by_the_rules);
    std::printf("without one rounding: %.3g\n", error);
    EXPECT_GT(error, 2 * kBoundToRules);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LayerContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
