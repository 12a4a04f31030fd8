// A small group on the host backend whose ranks run a model beside it (lifetimes_model_test.cc):
// what they share.
#ifndef PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_
#define PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_

#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/host/host_backend.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {

inline constexpr Geometry kModelGeometry = {
    .ranks = 2, .experts = 4, .tokens = 4, .topk = 2, .slots = 1, .token_padding = 2};
inline constexpr WeightsShape kModelShape = {8, 8};
inline constexpr int kModelInputs = 6;

// Changed by rank 0 while all wait.
struct ModelGroup {
  explicit ModelGroup(uint64_t seed) : random(seed) {
    for (int i = 0; i < kModelInputs; ++i) {
      inputs.push_back(NamedInputs(PlainGroup(random, kModelGeometry), kModelShape.hidden, i));
    }
    const std::vector<BFloat16> zeros(kModelShape.matrix_elements());
    experts.assign(kModelGeometry.experts, {zeros, zeros, zeros});
    store =
        std::make_unique<ExpertStore>(backends, kModelGeometry, kModelShape, /*own_mappings=*/true);
    store->Load(0, 1, experts);
    Renew();
  }
  void Renew() {
    RankGroupOptions options;
    options.geometry = kModelGeometry;
    options.hidden = kModelShape.hidden;
    options.generation = Generation(++generation);
    options.sources = true;
    group = std::make_unique<RankGroup>(backends, options);
  }
  // A rank has found a difference: nobody waits for it.
  void Stop() {
    failed = true;
    for (int32_t rank = 0; rank < kModelGeometry.ranks; ++rank) {
      group->path(rank).Abort(-1, "differs");
    }
  }

  std::mt19937_64 random;
  std::unique_ptr<Backend> backend = CreateHostBackend();
  RankBackends backends{*backend};
  std::vector<std::vector<RankInput>> inputs;
  std::vector<ExpertBits> experts;
  std::unique_ptr<ExpertStore> store;
  std::unique_ptr<RankGroup> group;
  uint64_t generation = 6;
  std::atomic<bool> failed = false;
  std::barrier<> meeting{kModelGeometry.ranks};
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_
