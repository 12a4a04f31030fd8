#include "kernels/plan/random_group.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace perigee {
namespace {

int32_t Between(std::mt19937_64& random, int32_t low, int32_t high) {
  return std::uniform_int_distribution<int32_t>(low, high)(random);
}

int32_t OneOf(std::mt19937_64& random, std::vector<int32_t> choices) {
  return choices[Between(random, 0, static_cast<int32_t>(choices.size()) - 1)];
}

Geometry RandomGeometry(std::mt19937_64& random) {
  Geometry geometry;
  geometry.ranks = Between(random, 0, 199) == 0 ? Between(random, 17, 128) : Between(random, 1, 16);
  const int32_t epn = geometry.ranks > 16 ? Between(random, 1, 2) : Between(random, 1, 6);
  geometry.experts = geometry.ranks * epn;
  geometry.tokens = Between(random, 0, 9) == 0 ? 0 : Between(random, 1, 8);
  geometry.topk = Between(random, 0, 99) == 0 ? 32 : Between(random, 1, 6);
  geometry.slots =
      OneOf(random, {0, Between(random, 0, epn), epn, epn, epn + Between(random, 1, 3)});
  geometry.token_padding = OneOf(random, {1, 2, 4, Between(random, 1, 16), 128});
  return geometry;
}

// How the ids of one group are drawn.
std::function<int32_t()> RandomIds(std::mt19937_64& random, const Geometry& geometry) {
  const int32_t experts = geometry.experts;
  switch (Between(random, 0, 4)) {
    case 0: {  // all on one expert
      const int32_t expert = Between(random, 0, experts - 1);
      return [expert] { return expert; };
    }
    case 1: {  // all on one rank
      const int32_t epn = geometry.experts_per_rank();
      const int32_t first = Between(random, 0, geometry.ranks - 1) * epn;
      return [&random, first, epn] { return first + Between(random, 0, epn - 1); };
    }
    case 2: {  // skewed: some experts far hotter
      std::vector<double> weights(experts);
      for (double& weight : weights) {
        weight = std::exponential_distribution<double>(1.0)(random);
        weight = weight * weight * weight;
      }
      std::discrete_distribution<int32_t> distribution(weights.begin(), weights.end());
      return [&random, distribution]() mutable { return distribution(random); };
    }
    default:
      return [&random, experts] { return Between(random, 0, experts - 1); };
  }
}

void DistinctTokens(std::mt19937_64& random, GroupInput& input) {
  const Geometry& geometry = input.geometry;
  std::vector<int32_t> ids(geometry.experts);
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t token = 0; token < input.topk_experts.size(); token += geometry.topk) {
    std::shuffle(ids.begin(), ids.end(), random);
    std::copy_n(ids.begin(), geometry.topk, input.topk_experts.begin() + token);
  }
}

}  // namespace

std::string GroupInput::Describe() const {
  return absl::StrCat("R ", geometry.ranks, " E ", geometry.experts, " S ", geometry.tokens, " K ",
                      geometry.topk, " P ", geometry.token_padding, " B ", geometry.slots,
                      "\ntoken_counts ", absl::StrJoin(token_counts, ","), "\ntopk_experts ",
                      absl::StrJoin(topk_experts, ","));
}

uint64_t TestSeed() {
  const char* given = std::getenv("PERIGEE_SEED");
  const uint64_t seed = given != nullptr
                            ? std::strtoull(given, nullptr, 10)
                            : (uint64_t{std::random_device()()} << 32) | std::random_device()();
  std::printf("PERIGEE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

GroupInput RandomGroup(std::mt19937_64& random) {
  GroupInput input;
  input.geometry = RandomGeometry(random);
  const Geometry& geometry = input.geometry;
  input.topk_experts.resize(static_cast<size_t>(geometry.ranks) * geometry.routes());
  const std::function<int32_t()> next_id = RandomIds(random, geometry);
  std::generate(input.topk_experts.begin(), input.topk_experts.end(), next_id);
  if (geometry.topk <= geometry.experts && Between(random, 0, 3) == 0) {
    DistinctTokens(random, input);
  }
  if (Between(random, 0, 2) == 0) {
    const int32_t share = OneOf(random, {1, 5, 9, 10});  // masked, in tenths
    for (int32_t& id : input.topk_experts) id = Between(random, 1, 10) <= share ? -1 : id;
  }
  input.token_counts.assign(geometry.ranks, geometry.tokens);
  if (Between(random, 0, 2) == 0) {
    for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
      const int32_t count = OneOf(random, {0, Between(random, 0, geometry.tokens)});
      input.token_counts[rank] = count;
      for (int32_t i = count * geometry.topk; i < geometry.routes(); ++i) {
        input.topk_experts[static_cast<size_t>(rank) * geometry.routes() + i] =
            OneOf(random, {INT32_MIN, -2, geometry.experts, INT32_MAX, 0});
      }
    }
  }
  return input;
}

}  // namespace perigee
