#include "client/cli/bench/bench_data.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace perigee {
namespace {

// SplitMix64: a few additions and multiplications a word, for gigabytes of values.
class Words {
 public:
  explicit Words(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }
  // Uniform in [0, 1).
  double Unit() { return std::ldexp(static_cast<double>(Next() >> 11), -53); }
  // Uniform in [0, limit), as nearly as 32 bits allow.
  uint32_t Below(uint32_t limit) {
    return static_cast<uint32_t>(((Next() >> 32) * uint64_t{limit}) >> 32);
  }

 private:
  uint64_t state_;
};

constexpr int kTableBits = 12;
constexpr size_t kTableSize = size_t{1} << kTableBits;
constexpr int kValuesOfWord = 64 / kTableBits;

// Values drawn once; the long tensors take theirs from here.
std::vector<BFloat16> NormalTable(float scale) {
  std::mt19937_64 engine(20240501);
  std::normal_distribution<float> normal;
  std::vector<BFloat16> table(kTableSize);
  for (BFloat16& value : table) value = ToBFloat16(scale * normal(engine));
  return table;
}

// Box and Muller's normal numbers.
std::vector<double> LognormalWeights(Words& words, int32_t count, double sigma) {
  std::vector<double> weights;
  for (int32_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - words.Unit()));
    weights.push_back(std::exp(sigma * radius * std::cos(2 * M_PI * words.Unit())));
  }
  return weights;
}

// Draws by weight, and changes weights, in the logarithm of their number. Every sum is made anew of
// its two parts: what is taken away leaves no rounding behind, however much it weighed.
class WeightTree {
 public:
  explicit WeightTree(const std::vector<double>& weights) {
    while (leaves_ < weights.size()) leaves_ *= 2;
    sums_.assign(2 * leaves_, 0);
    std::copy(weights.begin(), weights.end(), sums_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (size_t node = leaves_ - 1; node > 0; --node) Sum(node);
  }

  // The one at this part, in [0, 1), of all weights; never one whose weight is 0. Not all are.
  int32_t Find(double part) const {
    double rest = part * sums_[1];
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      const double left = sums_[node];
      if (sums_[node + 1] > 0 && rest >= left) {
        rest -= left;
        ++node;
      }
    }
    return static_cast<int32_t>(node - leaves_);
  }
  // Returns what it was.
  double Set(int32_t index, double weight) {
    size_t node = leaves_ + static_cast<size_t>(index);
    const double old = std::exchange(sums_[node], weight);
    while ((node /= 2) > 0) Sum(node);
    return old;
  }

 private:
  void Sum(size_t node) { sums_[node] = sums_[2 * node] + sums_[2 * node + 1]; }

  size_t leaves_ = 1;
  std::vector<double> sums_;  // sums_[1] of all; children of i: 2 i and 2 i + 1
};

}  // namespace

uint64_t DeriveSeed(uint64_t seed, uint64_t tensor, uint64_t rank) {
  Words words(seed ^ (tensor * 0xd1342543de82ef95) ^ (rank * 0xaf251af3b0f025b5));
  return words.Next();
}

std::vector<BFloat16> RandomBFloat16(uint64_t seed, size_t count, float scale) {
  const std::vector<BFloat16> table = NormalTable(scale);
  std::vector<BFloat16> values(count);
  Words words(seed);
  for (size_t i = 0; i < count;) {
    uint64_t word = words.Next();
    for (int part = 0; part < kValuesOfWord && i < count; ++part, ++i) {
      values[i] = table[word % kTableSize];
      word >>= kTableBits;
    }
  }
  return values;
}

std::vector<float> RandomWeights(uint64_t seed, size_t count) {
  Words words(seed);
  std::vector<float> weights(count);
  for (float& weight : weights) {
    weight = std::ldexp(static_cast<float>(words.Next() >> 40), -24);
  }
  return weights;
}

std::vector<int32_t> RandomRoutes(uint64_t seed, const Geometry& geometry) {
  Words words(seed);
  std::vector<int32_t> routes;
  routes.reserve(static_cast<size_t>(geometry.ranks) * geometry.routes());
  for (int64_t token = 0; token < int64_t{geometry.ranks} * geometry.tokens; ++token) {
    const size_t first = routes.size();
    while (routes.size() < first + geometry.topk) {
      const auto expert = static_cast<int32_t>(words.Below(geometry.experts));
      const auto begin = routes.begin() + static_cast<std::ptrdiff_t>(first);
      if (std::find(begin, routes.end(), expert) == routes.end()) routes.push_back(expert);
    }
  }
  return routes;
}

std::vector<int32_t> SkewedRoutes(uint64_t seed, const Geometry& geometry, double sigma) {
  Words words(seed);
  WeightTree tree(LognormalWeights(words, geometry.experts, sigma));
  std::vector<int32_t> routes;
  routes.reserve(static_cast<size_t>(geometry.ranks) * geometry.routes());
  std::vector<double> taken(geometry.topk);
  for (int64_t token = 0; token < int64_t{geometry.ranks} * geometry.tokens; ++token) {
    for (int32_t k = 0; k < geometry.topk; ++k) {
      routes.push_back(tree.Find(words.Unit()));
      taken[k] = tree.Set(routes.back(), 0);
    }
    for (int32_t k = 0; k < geometry.topk; ++k) {
      tree.Set(routes[routes.size() - geometry.topk + k], taken[k]);
    }
  }
  return routes;
}

std::vector<int32_t> RemoteRoutes(uint64_t seed, const Geometry& geometry) {
  Words words(seed);
  const int32_t others = geometry.ranks - 1;
  std::vector<int32_t> routes;
  routes.reserve(static_cast<size_t>(geometry.ranks) * geometry.tokens);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    for (int32_t token = 0; token < geometry.tokens; ++token) {
      const int32_t to = (rank + 1 + token % others) % geometry.ranks;
      const auto expert = static_cast<int32_t>(words.Below(geometry.experts_per_rank()));
      routes.push_back(to * geometry.experts_per_rank() + expert);
    }
  }
  return routes;
}

}  // namespace perigee
