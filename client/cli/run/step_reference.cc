#include "client/cli/run/step_reference.h"

#include <cmath>

namespace perigee {
namespace {

std::vector<double> Doubles(const std::vector<BFloat16>& values) {
  std::vector<double> doubles(values.size());
  for (size_t i = 0; i < values.size(); ++i) doubles[i] = ToFloat(values[i]);
  return doubles;
}

// One layer's weights in double precision.
struct Weights {
  std::vector<double> gate, up, down;
};

// One row through one expert: what its backward needs, too.
struct Row {
  std::vector<double> a, b;    // [H'] x @ gate, x @ up
  std::vector<double> h;       // [H'] silu(a) * b
  std::vector<double> output;  // [H] h @ down, not scaled
};

class StepReference {
 public:
  explicit StepReference(const StepInput& input) : input_(input), sizes_(input.sizes) {
    for (const StepLayer& layer : input.layers) {
      weights_.push_back({Doubles(layer.gate), Doubles(layer.up), Doubles(layer.down)});
    }
  }

  std::vector<double> Forward(int32_t layer, const std::vector<double>& hidden) const {
    std::vector<double> sums(hidden.size());
    ForEachRoute(layer, [&](int64_t token, int64_t route, int32_t expert, double scale) {
      (void)route;
      const Row row = Through(layer, expert, &hidden[token * sizes_.hidden]);
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        sums[token * sizes_.hidden + i] += scale * row.output[i];
      }
    });
    return sums;
  }

  // The gradient of the layer's input `hidden`, and `found` what it says of weights.
  std::vector<double> Backward(int32_t layer, const std::vector<double>& hidden,
                               const std::vector<double>& grad, StepExpected::Layer& found) const {
    const size_t elements = static_cast<size_t>(sizes_.experts) * sizes_.matrix_elements();
    found.route_weight_grad.assign(sizes_.tokens * sizes_.topk, 0);
    for (auto* sums : {&found.gate_grad, &found.up_grad, &found.down_grad}) {
      sums->assign(elements, 0);
    }
    std::vector<double> hidden_grad(hidden.size());
    ForEachRoute(layer, [&](int64_t token, int64_t route, int32_t expert, double scale) {
      const double* x = &hidden[token * sizes_.hidden];
      const double* g = &grad[token * sizes_.hidden];
      const Row row = Through(layer, expert, x);
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        found.route_weight_grad[route] += row.output[i] * g[i];
      }
      AddRow(layer, expert, row, x, g, scale, &hidden_grad[token * sizes_.hidden], found);
    });
    return hidden_grad;
  }

 private:
  template <typename Visit>
  void ForEachRoute(int32_t layer, const Visit& visit) const {
    const StepLayer& routes = input_.layers[layer];
    for (int64_t route = 0; route < sizes_.tokens * sizes_.topk; ++route) {
      const int32_t expert = routes.topk_experts[route];
      if (expert >= 0) visit(route / sizes_.topk, route, expert, routes.route_weights[route]);
    }
  }
  int64_t First(int32_t expert) const { return expert * sizes_.matrix_elements(); }

  Row Through(int32_t layer, int32_t expert, const double* x) const {
    const int32_t inner = sizes_.intermediate;
    const Weights& weights = weights_[layer];
    Row row;
    row.a.resize(inner);
    row.b.resize(inner);
    row.h.resize(inner);
    row.output.resize(sizes_.hidden);
    for (int32_t j = 0; j < inner; ++j) {
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        const int64_t at = First(expert) + int64_t{i} * inner + j;
        row.a[j] += x[i] * weights.gate[at];
        row.b[j] += x[i] * weights.up[at];
      }
      row.h[j] = row.a[j] / (1 + std::exp(-row.a[j])) * row.b[j];
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        row.output[i] += row.h[j] * weights.down[First(expert) + int64_t{j} * sizes_.hidden + i];
      }
    }
    return row;
  }

  // d/da (a * sigmoid(a)) = sigmoid(a) * (1 + a * (1 - sigmoid(a))).
  void AddRow(int32_t layer, int32_t expert, const Row& row, const double* x, const double* g,
              double scale, double* x_grad, StepExpected::Layer& found) const {
    const int32_t inner = sizes_.intermediate;
    const Weights& weights = weights_[layer];
    for (int32_t j = 0; j < inner; ++j) {
      double h_grad = 0;
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        const int64_t at = First(expert) + int64_t{j} * sizes_.hidden + i;
        h_grad += scale * g[i] * weights.down[at];
        found.down_grad[at] += row.h[j] * scale * g[i];
      }
      const double sigmoid = 1 / (1 + std::exp(-row.a[j]));
      const double a_grad = h_grad * row.b[j] * sigmoid * (1 + row.a[j] * (1 - sigmoid));
      const double b_grad = h_grad * row.a[j] * sigmoid;
      for (int32_t i = 0; i < sizes_.hidden; ++i) {
        const int64_t at = First(expert) + int64_t{i} * inner + j;
        x_grad[i] += a_grad * weights.gate[at] + b_grad * weights.up[at];
        found.gate_grad[at] += x[i] * a_grad;
        found.up_grad[at] += x[i] * b_grad;
      }
    }
  }

  const StepInput& input_;
  const StepSizes& sizes_;
  std::vector<Weights> weights_;
};

}  // namespace

StepExpected ComputeStep(const StepInput& input) {
  const StepReference reference(input);
  std::vector<std::vector<double>> inputs = {Doubles(input.hidden)};
  for (int32_t layer = 0; layer < input.sizes.layers; ++layer) {
    inputs.push_back(reference.Forward(layer, inputs.back()));
  }
  StepExpected expected;
  expected.output = inputs.back();
  expected.layers.resize(input.sizes.layers);
  expected.hidden_grad = Doubles(input.output_grad);
  for (int32_t layer = input.sizes.layers - 1; layer >= 0; --layer) {
    expected.hidden_grad =
        reference.Backward(layer, inputs[layer], expected.hidden_grad, expected.layers[layer]);
  }
  return expected;
}

}  // namespace perigee
