#include "client/cli/run/step_experts.h"

#include <cmath>
#include <vector>

namespace perigee {
namespace {

// The row after the first two matrices.
struct Inner {
  std::vector<float> a, b, sigmoid, h;  // [H']
};

Inner Forward(const ExpertMatrices& expert, const BFloat16* row) {
  const int32_t width = expert.intermediate;
  Inner inner = {std::vector<float>(width), std::vector<float>(width), std::vector<float>(width),
                 std::vector<float>(width)};
  for (int32_t i = 0; i < expert.hidden; ++i) {
    const float x = ToFloat(row[i]);
    const BFloat16* gate = expert.gate + int64_t{i} * width;
    const BFloat16* up = expert.up + int64_t{i} * width;
    for (int32_t j = 0; j < width; ++j) {
      inner.a[j] += x * ToFloat(gate[j]);
      inner.b[j] += x * ToFloat(up[j]);
    }
  }
  for (int32_t j = 0; j < width; ++j) {
    inner.sigmoid[j] = 1 / (1 + std::exp(-inner.a[j]));
    inner.h[j] = ToFloat(ToBFloat16(inner.a[j] * inner.sigmoid[j] * inner.b[j]));
  }
  return inner;
}

}  // namespace

float ExpertRowBackward(const ExpertMatrices& expert, const BFloat16* row, float route_weight,
                        const BFloat16* output_grad, BFloat16* row_grad, const ExpertSums& sums) {
  const int32_t width = expert.intermediate;
  const Inner inner = Forward(expert, row);
  std::vector<float> a_grad(width), b_grad(width);
  float weight_grad = 0;
  for (int32_t j = 0; j < width; ++j) {
    float h_grad = 0;
    for (int32_t i = 0; i < expert.hidden; ++i) {
      const int64_t at = int64_t{j} * expert.hidden + i;
      const float down = ToFloat(expert.down[at]);
      const float grad = ToFloat(output_grad[i]);
      h_grad += down * grad;
      sums.down[at] += inner.h[j] * route_weight * grad;
    }
    weight_grad += inner.h[j] * h_grad;
    h_grad *= route_weight;
    a_grad[j] = h_grad * inner.b[j] * inner.sigmoid[j] * (1 + inner.a[j] * (1 - inner.sigmoid[j]));
    b_grad[j] = h_grad * inner.a[j] * inner.sigmoid[j];
  }
  for (int32_t i = 0; i < expert.hidden; ++i) {
    const float x = ToFloat(row[i]);
    float sum = 0;
    for (int32_t j = 0; j < width; ++j) {
      const int64_t at = int64_t{i} * width + j;
      sum += a_grad[j] * ToFloat(expert.gate[at]) + b_grad[j] * ToFloat(expert.up[at]);
      sums.gate[at] += x * a_grad[j];
      sums.up[at] += x * b_grad[j];
    }
    row_grad[i] = ToBFloat16(sum);
  }
  return weight_grad;
}

}  // namespace perigee
