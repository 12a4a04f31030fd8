#include "worker/testing/small_layer.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "worker/ops/tensor_spec.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

constexpr int32_t kTokens = 12;
constexpr int32_t kHidden = 16;
constexpr int32_t kIntermediate = 24;
constexpr int32_t kTopk = 3;
constexpr int32_t kPadding = 4;
constexpr int32_t kExpertsPerRank = 2;
constexpr uint64_t kVersion = 9;

template <typename T>
std::string ToText(const T* values, size_t count) {
  return std::string(reinterpret_cast<const char*>(values), count * sizeof(T));
}

std::string BFloat16Bytes(const std::vector<double>& values, size_t count) {
  std::vector<BFloat16> bits;
  for (size_t i = 0; i < count; ++i) bits.push_back(Bits(values[i]));
  return ToText(bits.data(), bits.size());
}

std::vector<double> RandomValues(std::mt19937_64& random, size_t count, double scale) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(count);
  for (double& value : values) value = RoundToBFloat16(normal(random));
  return values;
}

}  // namespace

SmallLayer::SmallLayer(int32_t ranks, uint64_t seed)
    : geometry_{ranks, kExpertsPerRank * ranks, kTokens, kTopk, kExpertsPerRank, kPadding} {
  std::mt19937_64 random(seed);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    token_counts_.push_back(rank + 1 == ranks ? 0 : kTokens - rank - 1);
    hidden_.push_back(RandomValues(random, kTokens * kHidden, 1));
    std::vector<int32_t>& topk = topk_.emplace_back();
    std::vector<float>& weights = weights_.emplace_back();
    for (int32_t route = 0; route < kTokens * kTopk; ++route) {
      // Half of the routes go to one expert; one in eight is masked.
      const int32_t expert = random() % 2 ? 0 : static_cast<int32_t>(random() % geometry_.experts);
      topk.push_back(random() % 8 ? expert : -1);
      weights.push_back(static_cast<float>(random() % 1000) / 1000);
    }
  }
  for (int32_t expert = 0; expert < geometry_.experts; ++expert) {
    const size_t elements = kHidden * kIntermediate;
    experts_.push_back({RandomValues(random, elements, 0.2), RandomValues(random, elements, 0.2),
                        RandomValues(random, elements, 0.2)});
  }
  plan_ = PlanByTheRules(geometry_, topk_, token_counts_);
  std::vector<std::vector<double>> rows;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<double>& shard = rows.emplace_back();
    for (const RowSource& source : RowSourcesOf(geometry_, plan_, rank)) {
      const std::vector<double> row = ExpertRow(source);
      shard.insert(shard.end(), row.begin(), row.end());
    }
  }
  outputs_ = CombineByTheRules(geometry_, kHidden, plan_, rows);
}

std::vector<double> SmallLayer::ExpertRow(const RowSource& source) const {
  if (source.kind != RowSource::Kind::kRoute) return std::vector<double>(kHidden);
  const auto begin = hidden_[source.rank].begin() + source.token * kHidden;
  const int32_t route = source.token * kTopk + source.k;
  return RunExpertByTheRules(std::vector<double>(begin, begin + kHidden),
                             experts_[topk_[source.rank][route]], weights_[source.rank][route]);
}

v1::BufferShape SmallLayer::shape() const {
  v1::BufferShape shape;
  shape.set_tokens(kTokens);
  shape.set_hidden(kHidden);
  shape.set_topk(kTopk);
  shape.set_experts(geometry_.experts);
  shape.set_token_padding(kPadding);
  shape.set_intermediate(kIntermediate);
  shape.set_layers(1);
  return shape;
}

std::vector<LayerTensor> SmallLayer::Inputs(int32_t rank) const {
  const int64_t count = token_counts_[rank];
  return {
      {NamedTarget("hidden"), ToHeader(MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {count, kHidden})),
       BFloat16Bytes(hidden_[rank], count * kHidden)},
      {NamedTarget("topk"), ToHeader(MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {count, kTopk})),
       ToText(topk_[rank].data(), count * kTopk)},
      {NamedTarget("weights"), ToHeader(MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {count, kTopk})),
       ToText(weights_[rank].data(), count * kTopk)}};
}

std::vector<LayerTensor> SmallLayer::Weights(int32_t rank) const {
  std::vector<LayerTensor> tensors;
  for (const auto kind : {v1::WeightTarget::GATE, v1::WeightTarget::UP, v1::WeightTarget::DOWN}) {
    const bool down = kind == v1::WeightTarget::DOWN;
    LayerTensor tensor{WeightsTarget(0, kVersion, kind),
                       ToHeader(MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16,
                                               {kExpertsPerRank, down ? kIntermediate : kHidden,
                                                down ? kHidden : kIntermediate})),
                       ""};
    for (int32_t i = 0; i < kExpertsPerRank; ++i) {
      const ExpertValues& expert = experts_[rank * kExpertsPerRank + i];
      const std::vector<double>& values = down                             ? expert.down
                                          : kind == v1::WeightTarget::GATE ? expert.gate
                                                                           : expert.up;
      tensor.bytes += BFloat16Bytes(values, values.size());
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<double> SmallLayer::ExpectedOutput(int32_t rank) const { return outputs_[rank]; }

std::string SmallLayer::ExpectedGathered(int32_t rank) const {
  std::vector<float> gathered(kTokens * kTopk);
  for (int32_t route = 0; route < token_counts_[rank] * kTopk; ++route) {
    if (topk_[rank][route] >= 0) gathered[route] = weights_[rank][route];
  }
  return ToText(gathered.data(), gathered.size());
}

std::vector<double> BFloat16Values(const std::string& bytes) {
  std::vector<double> values;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    BFloat16 bits;
    std::memcpy(&bits, bytes.data() + i, sizeof(bits));
    values.push_back(Value(bits));
  }
  return values;
}

}  // namespace perigee
