#include "client/cli/run/step_experts.h"

#include <cmath>
#include <vector>

#include "client/cli/run/step_reference.h"
#include "gtest/gtest.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

double RelativeError(const float* found, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(found[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / norm);
}

// One expert, so that the reference's step of one layer is this.
TEST(StepExpertsTest, RowsGiveWhatTheReferenceSays) {
  const uint64_t seed = TestSeed();
  const StepSizes sizes = {12, 32, 24, 1, 1, 1};
  StepInput input = RandomStep(sizes, seed);
  StepLayer& layer = input.layers[0];
  layer.topk_experts.assign(sizes.tokens, 0);
  const StepExpected expected = ComputeStep(input);

  const ExpertMatrices expert = {sizes.hidden, sizes.intermediate, layer.gate.data(),
                                 layer.up.data(), layer.down.data()};
  std::vector<float> gate(sizes.matrix_elements()), up = gate, down = gate;
  std::vector<float> row_grads, weight_grads;
  for (int64_t token = 0; token < sizes.tokens; ++token) {
    std::vector<BFloat16> row_grad(sizes.hidden);
    const int64_t first = token * sizes.hidden;
    weight_grads.push_back(ExpertRowBackward(
        expert, &input.hidden[first], layer.route_weights[token], &input.output_grad[first],
        row_grad.data(), {gate.data(), up.data(), down.data()}));
    for (const BFloat16 value : row_grad) row_grads.push_back(ToFloat(value));
  }
  EXPECT_LT(RelativeError(row_grads.data(), expected.hidden_grad), 4e-3);
  EXPECT_LT(RelativeError(weight_grads.data(), expected.layers[0].route_weight_grad), 8e-3);
  EXPECT_LT(RelativeError(gate.data(), expected.layers[0].gate_grad), 1e-4);
  EXPECT_LT(RelativeError(up.data(), expected.layers[0].up_grad), 1e-4);
  EXPECT_LT(RelativeError(down.data(), expected.layers[0].down_grad), 4e-3);
}

}  // namespace
}  // namespace perigee
