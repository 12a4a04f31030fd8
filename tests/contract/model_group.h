// A small group on the host backend whose ranks run a model beside it (lifetimes_model_test.cc):
// what they share.
#ifndef PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_
#define PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/common/check.h"
#include "kernels/host/host_backend.h"
#include "kernels/layout/shard_layout.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/gradient_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {

inline constexpr Geometry kModelGeometry = {
    .ranks = 2, .experts = 4, .tokens = 4, .topk = 2, .slots = 2, .token_padding = 2};
inline constexpr WeightsShape kModelShape = {8, 8};
inline constexpr int kModelInputs = 6;
// Of some generations, with fewer slots than a reduction of gradients needs.
constexpr Geometry ModelGeometryOf(uint64_t generation) {
  Geometry geometry = kModelGeometry;
  if (generation % 4 == 0) geometry.slots = 1;
  return geometry;
}
inline constexpr RingOptions kModelRings = {.dispatch_slots = 3, .expert_slots = 2};

// The same ranks' data paths of another buffer, with a ring of one slot.
class OtherBuffer {
 public:
  OtherBuffer(Backend& backend, Generation generation) {
    DataPathOptions options;
    options.geometry = kModelGeometry;
    options.hidden = kModelShape.hidden;
    options.buffer = BufferId(4);
    options.generation = generation;
    options.operation_timeout = absl::Seconds(120);
    options.rings = {.dispatch_slots = 1};
    const ShardLayout layout = ShardLayout::Create(kModelGeometry, kModelShape.hidden, 1);
    for (int32_t rank = 0; rank < kModelGeometry.ranks; ++rank) {
      auto shard = backend.AllocateShared(layout.size_bytes, PeerAccess::kReadWrite);
      PERIGEE_CHECK(shard.ok());
      shards_.push_back(*std::move(shard));
      options.shards.push_back(shards_.back()->data());
    }
    for (int32_t rank = 0; rank < kModelGeometry.ranks; ++rank) {
      options.rank = RankId(rank);
      auto path = backend.CreateDataPath(options);
      PERIGEE_CHECK(path.ok());
      paths_.push_back(*std::move(path));
    }
  }
  DataPath& path(int32_t rank) { return *paths_[rank]; }

 private:
  std::vector<std::unique_ptr<Memory>> shards_;   // [R]
  std::vector<std::unique_ptr<DataPath>> paths_;  // [R]
};

// To the experts of one rank, so that the others help it.
inline void SendAllTo(int32_t rank, GroupInput& input) {
  const int32_t experts = kModelGeometry.experts_per_rank();
  for (int32_t& expert : input.topk_experts) expert = rank * experts + expert % experts;
}

// Changed by rank 0 while all wait.
struct ModelGroup {
  explicit ModelGroup(uint64_t seed) : random(seed) {
    for (int i = 0; i < kModelInputs; ++i) {
      GroupInput input = PlainGroup(random, kModelGeometry);
      if (i < kModelGeometry.ranks) SendAllTo(i, input);
      inputs.push_back(NamedInputs(input, kModelShape.hidden, i));
    }
    const std::vector<BFloat16> zeros(kModelShape.matrix_elements());
    experts.assign(kModelGeometry.experts, {zeros, zeros, zeros});
    store =
        std::make_unique<ExpertStore>(backends, kModelGeometry, kModelShape, /*own_mappings=*/true);
    store->Load(0, 1, experts);
    gradients = std::make_unique<GradientStore>(backends, kModelGeometry, kModelShape,
                                                /*own_mappings=*/true);
    Renew();
  }
  void Renew() {
    RankGroupOptions options;
    options.geometry = ModelGeometryOf(++generation);
    options.hidden = kModelShape.hidden;
    options.generation = Generation(generation);
    options.sources = true;
    options.rings = kModelRings;
    group = std::make_unique<RankGroup>(backends, options);
    other = std::make_unique<OtherBuffer>(*backend, options.generation);
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
  std::unique_ptr<GradientStore> gradients;
  std::unique_ptr<RankGroup> group;
  std::unique_ptr<OtherBuffer> other;
  uint64_t generation = 6;
  std::atomic<bool> failed = false;
  // What each rank says to the others when they meet, this time or the next.
  std::array<std::array<bool, kModelGeometry.ranks>, 2> said = {};
  std::barrier<> meeting{kModelGeometry.ranks};
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_MODEL_GROUP_H_
