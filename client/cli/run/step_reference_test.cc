#include "client/cli/run/step_reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "gtest/gtest.h"
#include "kernels/plan/random_group.h"

namespace perigee {
namespace {

constexpr double kStep = 1.0 / 64;
constexpr double kTolerance = 2e-2;

double Loss(const StepInput& input) {
  const StepExpected step = ComputeStep(input);
  double loss = 0;
  for (size_t i = 0; i < step.output.size(); ++i) {
    loss += step.output[i] * ToFloat(input.output_grad[i]);
  }
  return loss;
}

class StepReferenceTest : public ::testing::Test {
 protected:
  StepReferenceTest() {
    random_.seed(seed_);
    input_ = RandomStep({3, 8, 16, 2, 4, 2}, seed_);
  }
  // The slope of the loss where `move` moves one value against what the reference says.
  void ExpectSlope(double grad, const std::function<double(StepInput&, double by)>& move) {
    StepInput more = input_;
    StepInput less = input_;
    const double width = move(more, kStep) - move(less, -kStep);
    ASSERT_GT(width, 0);
    EXPECT_NEAR((Loss(more) - Loss(less)) / width, grad, kTolerance * (1 + std::abs(grad)));
  }
  // bf16 holds the step beside numbers below 2, and so in proportion.
  static double Move(BFloat16& value, double by) {
    const double scale = std::max(1.0, std::exp2(std::ilogb(ToFloat(value))));
    value = ToBFloat16(static_cast<float>(ToFloat(value) + by * scale));
    return ToFloat(value);
  }
  size_t Any(size_t count) { return random_() % count; }

  const uint64_t seed_ = TestSeed();
  std::mt19937_64 random_;
  StepInput input_;
};

TEST_F(StepReferenceTest, GradientsAreSlopesOfTheLoss) {
  const StepExpected expected = ComputeStep(input_);
  for (int round = 0; round < 20; ++round) {
    const size_t token = Any(input_.hidden.size());
    ExpectSlope(expected.hidden_grad[token],
                [&](StepInput& input, double by) { return Move(input.hidden[token], by); });
    const size_t layer = Any(input_.layers.size());
    const StepExpected::Layer& found = expected.layers[layer];
    const size_t at = Any(found.gate_grad.size());
    ExpectSlope(found.gate_grad[at], [&](StepInput& input, double by) {
      return Move(input.layers[layer].gate[at], by);
    });
    ExpectSlope(found.up_grad[at],
                [&](StepInput& input, double by) { return Move(input.layers[layer].up[at], by); });
    ExpectSlope(found.down_grad[at], [&](StepInput& input, double by) {
      return Move(input.layers[layer].down[at], by);
    });
    const size_t route = Any(found.route_weight_grad.size());
    ExpectSlope(found.route_weight_grad[route], [&](StepInput& input, double by) {
      return input.layers[layer].route_weights[route] += static_cast<float>(by);
    });
  }
}

TEST_F(StepReferenceTest, MaskedRoutesTakeNoPart) {
  input_.layers[1].topk_experts.assign(input_.layers[1].topk_experts.size(), -1);
  const StepExpected expected = ComputeStep(input_);
  for (const double value : expected.output) EXPECT_EQ(value, 0);
  for (const double value : expected.hidden_grad) EXPECT_EQ(value, 0);
  for (const double value : expected.layers[1].route_weight_grad) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace perigee
