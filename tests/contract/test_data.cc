#include "tests/contract/test_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

uint32_t Mix(uint32_t a, uint32_t b) {
  uint32_t x = (a ^ (b + 0x9e3779b9u + (a << 6) + (a >> 2))) * 0x85ebca6bu;
  x ^= x >> 13;
  return x * 0xc2b2ae35u ^ x >> 16;
}

}  // namespace

std::vector<BFloat16> NamedRow(int32_t rank, int32_t token, int32_t hidden, uint32_t salt) {
  const uint32_t name = Mix(Mix(salt, rank), token);
  std::vector<BFloat16> row(hidden);
  for (int32_t i = 0; i < hidden; ++i) row[i].bits = static_cast<uint16_t>(Mix(name, i));
  return row;
}

float NamedWeight(int32_t rank, int32_t token, int32_t k, uint32_t salt) {
  return static_cast<float>(Mix(Mix(Mix(salt, rank), token), k)) * 0x1p-32f + 0.25f;
}

std::vector<RankInput> NamedInputs(const GroupInput& group, int32_t hidden, uint32_t salt) {
  const Geometry& geometry = group.geometry;
  std::vector<RankInput> inputs(geometry.ranks);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    RankInput& input = inputs[rank];
    input.token_count = group.token_counts[rank];
    const auto routes = group.topk_experts.begin() + static_cast<size_t>(rank) * geometry.routes();
    input.topk_experts.assign(routes, routes + geometry.routes());
    for (int32_t token = 0; token < geometry.tokens; ++token) {
      const std::vector<BFloat16> row = NamedRow(rank, token, hidden, salt);
      input.hidden.insert(input.hidden.end(), row.begin(), row.end());
      for (int32_t k = 0; k < geometry.topk; ++k) {
        input.route_weights.push_back(NamedWeight(rank, token, k, salt));
      }
    }
  }
  return inputs;
}

std::vector<BFloat16> RandomNumbers(std::mt19937_64& random, size_t size) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 31);
  std::vector<BFloat16> numbers(size);
  for (BFloat16& number : numbers) {
    const int choice = kind(random);
    const float value =
        choice < 2 ? (choice == 0 ? 0.0f : -0.0f) : std::ldexp(normal(random), choice % 4 - 2);
    number = ToBFloat16(value);
  }
  return numbers;
}

std::vector<BFloat16> NormalNumbers(std::mt19937_64& random, size_t size, double deviation) {
  std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
  std::vector<BFloat16> numbers(size);
  for (BFloat16& number : numbers) number = ToBFloat16(normal(random));
  return numbers;
}

std::vector<float> RandomWeights(std::mt19937_64& random, size_t size) {
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> weights(size);
  std::generate(weights.begin(), weights.end(), [&] { return uniform(random); });
  return weights;
}

std::vector<double> ValuesOf(const std::vector<BFloat16>& bits) {
  std::vector<double> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), Value);
  return values;
}

ReferencePlan PlanByTheRules(const GroupInput& group) {
  Matrix topk_experts(group.geometry.ranks);
  for (int32_t rank = 0; rank < group.geometry.ranks; ++rank) {
    const auto routes =
        group.topk_experts.begin() + static_cast<size_t>(rank) * group.geometry.routes();
    topk_experts[rank].assign(routes, routes + group.geometry.routes());
  }
  return PlanByTheRules(group.geometry, topk_experts, group.token_counts);
}

void OnRandomGroups(std::mt19937_64& random, int count, int32_t max_ranks,
                    const std::function<void(int i, const GroupInput& input)>& run) {
  ASSERT_GE(count, 1);
  ASSERT_GE(max_ranks, 1);
  int ran = 0;
  while (ran < count && !testing::Test::HasFailure()) {
    const GroupInput input = RandomGroup(random);
    if (input.geometry.ranks > max_ranks) continue;
    SCOPED_TRACE(input.Describe());
    run(ran++, input);
  }
  EXPECT_EQ(ran, count) << "groups have run";
}

GroupInput PlainGroup(std::mt19937_64& random, const Geometry& geometry) {
  GroupInput group;
  group.geometry = geometry;
  group.token_counts.assign(geometry.ranks, geometry.tokens);
  std::vector<int32_t> ids(geometry.experts);
  std::iota(ids.begin(), ids.end(), 0);
  for (int32_t token = 0; token < geometry.ranks * geometry.tokens; ++token) {
    std::shuffle(ids.begin(), ids.end(), random);
    group.topk_experts.insert(group.topk_experts.end(), ids.begin(), ids.begin() + geometry.topk);
  }
  return group;
}

}  // namespace perigee
