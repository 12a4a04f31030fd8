#include "client/cli/run/step_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace perigee {
namespace {

constexpr double kMasked = 0.1;
// By how much the first expert is wanted more than the last: each token takes the K experts with
// the least of a number in [0, 1) plus up to this.
constexpr double kSkew = 2;

std::vector<BFloat16> Normal(size_t count, double scale, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<BFloat16> values(count);
  for (BFloat16& value : values) value = ToBFloat16(normal(random));
  return values;
}

StepLayer RandomLayer(const StepSizes& sizes, std::mt19937_64& random) {
  StepLayer layer;
  const size_t elements = static_cast<size_t>(sizes.experts) * sizes.matrix_elements();
  layer.gate = Normal(elements, 1 / std::sqrt(sizes.hidden), random);
  layer.up = Normal(elements, 1 / std::sqrt(sizes.hidden), random);
  layer.down = Normal(elements, 1 / std::sqrt(sizes.intermediate), random);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<double> wanted(sizes.experts);
  std::vector<int32_t> experts(sizes.experts);
  for (int64_t token = 0; token < sizes.tokens; ++token) {
    for (int32_t e = 0; e < sizes.experts; ++e)
      wanted[e] = unit(random) + kSkew * e / sizes.experts;
    std::iota(experts.begin(), experts.end(), 0);
    std::partial_sort(experts.begin(), experts.begin() + sizes.topk, experts.end(),
                      [&](int32_t a, int32_t b) { return wanted[a] < wanted[b]; });
    for (int32_t k = 0; k < sizes.topk; ++k) {
      layer.topk_experts.push_back(unit(random) < kMasked ? -1 : experts[k]);
      layer.route_weights.push_back(static_cast<float>(unit(random)));
    }
  }
  return layer;
}

template <typename T>
std::vector<T> ValuesOf(const TensorView& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TensorView ViewOf(const std::vector<BFloat16>& values, std::vector<int64_t> shape) {
  return {v1::TENSOR_DTYPE_BFLOAT16, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(BFloat16))};
}

}  // namespace

LayerWeights StepLayer::weights(const StepSizes& sizes) const {
  const std::vector<int64_t> into = {sizes.experts, sizes.hidden, sizes.intermediate};
  const std::vector<int64_t> out_of = {sizes.experts, sizes.intermediate, sizes.hidden};
  return {ViewOf(gate, into), ViewOf(up, into), ViewOf(down, out_of)};
}

StepInput RandomStep(const StepSizes& sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  StepInput input;
  input.sizes = sizes;
  const size_t elements = static_cast<size_t>(sizes.tokens) * sizes.hidden;
  input.hidden = Normal(elements, 1, random);
  input.output_grad = Normal(elements, 1, random);
  for (int32_t i = 0; i < sizes.layers; ++i) input.layers.push_back(RandomLayer(sizes, random));
  return input;
}

StepInput StepOfFile(const LayerInput& file, int32_t layers, uint64_t seed) {
  StepInput input;
  input.sizes = {file.tokens(), file.hidden(),  file.intermediate(),
                 file.topk(),   file.experts(), layers};
  const RankInput tokens = file.ForRank(0, 1);
  const LayerWeights weights = file.weights();
  StepLayer layer;
  layer.topk_experts = ValuesOf<int32_t>(tokens.topk_experts);
  layer.route_weights = ValuesOf<float>(tokens.route_weights);
  layer.gate = ValuesOf<BFloat16>(weights.gate);
  layer.up = ValuesOf<BFloat16>(weights.up);
  layer.down = ValuesOf<BFloat16>(weights.down);
  input.layers.assign(layers, layer);
  input.hidden = ValuesOf<BFloat16>(tokens.hidden);
  std::mt19937_64 random(seed);
  input.output_grad = Normal(input.hidden.size(), 1, random);
  return input;
}

}  // namespace perigee
