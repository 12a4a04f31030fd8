#include "tests/testing/layer_file.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/types/span.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

std::vector<BFloat16> Normal(size_t count, float scale, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<BFloat16> values(count);
  for (BFloat16& value : values) value = ToBFloat16(normal(random));
  return values;
}

std::vector<double> Values(const std::vector<BFloat16>& from, size_t begin, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Value(from[begin + i]);
  return values;
}

template <typename T>
TensorSource Source(const std::string& name, TensorDtype dtype, std::vector<int64_t> shape,
                    const std::vector<T>& data) {
  return {name, dtype, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()),
                              data.size() * sizeof(T))};
}

}  // namespace

LayerFile LayerFile::Random(const Sizes& sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  LayerFile file;
  file.sizes = sizes;
  const size_t tokens = static_cast<size_t>(sizes.ranks) * sizes.tokens;
  const size_t matrix = static_cast<size_t>(sizes.hidden) * sizes.intermediate;
  file.hidden = Normal(tokens * sizes.hidden, 1.0f, random);
  file.gate = Normal(matrix * sizes.experts, 0.3f, random);
  file.up = Normal(matrix * sizes.experts, 0.3f, random);
  file.down = Normal(matrix * sizes.experts, 0.3f, random);
  std::uniform_real_distribution<float> unit(0, 1);
  std::vector<int32_t> experts(sizes.experts);
  std::iota(experts.begin(), experts.end(), 0);
  for (size_t token = 0; token < tokens; ++token) {
    std::shuffle(experts.begin(), experts.end(), random);
    for (int32_t k = 0; k < sizes.topk; ++k) {
      file.topk_experts.push_back(unit(random) < 0.1f ? -1 : experts[k]);
      file.route_weights.push_back(unit(random));
    }
  }
  file.ComputeExpected();
  return file;
}

void LayerFile::ComputeExpected() {
  const size_t matrix = static_cast<size_t>(sizes.hidden) * sizes.intermediate;
  std::vector<ExpertValues> values;
  for (int32_t e = 0; e < sizes.experts; ++e) {
    values.push_back({Values(gate, e * matrix, matrix), Values(up, e * matrix, matrix),
                      Values(down, e * matrix, matrix)});
  }
  const Rounding none = {false, false, false};
  const size_t tokens = static_cast<size_t>(sizes.ranks) * sizes.tokens;
  expected.clear();
  for (size_t token = 0; token < tokens; ++token) {
    const std::vector<double> row = Values(hidden, token * sizes.hidden, sizes.hidden);
    std::vector<double> sum(sizes.hidden);
    for (size_t route = token * sizes.topk; route < (token + 1) * sizes.topk; ++route) {
      if (topk_experts[route] < 0) continue;
      const std::vector<double> output =
          RunExpertByTheRules(row, values[topk_experts[route]], route_weights[route], none);
      for (size_t h = 0; h < sum.size(); ++h) sum[h] += output[h];
    }
    for (const double value : sum) expected.push_back(static_cast<float>(value));
  }
}

std::vector<TensorSource> LayerFile::Tensors() const {
  const auto& s = sizes;
  std::vector<TensorSource> tensors = {
      Source("hidden", TensorDtype::kBF16, {s.ranks, s.tokens, s.hidden}, hidden),
      Source("topk_experts", TensorDtype::kI32, {s.ranks, s.tokens, s.topk}, topk_experts),
      Source("route_weights", TensorDtype::kF32, {s.ranks, s.tokens, s.topk}, route_weights),
      Source("gate", TensorDtype::kBF16, {s.experts, s.hidden, s.intermediate}, gate),
      Source("up", TensorDtype::kBF16, {s.experts, s.hidden, s.intermediate}, up),
      Source("down", TensorDtype::kBF16, {s.experts, s.intermediate, s.hidden}, down),
  };
  if (!expected.empty() || s.tokens == 0) {
    tensors.push_back(
        Source("expected_output", TensorDtype::kF32, {s.ranks, s.tokens, s.hidden}, expected));
  }
  return tensors;
}

absl::Status LayerFile::Write(const std::string& path) const {
  return WriteTensorFile(path, Tensors(), {});
}

}  // namespace perigee
