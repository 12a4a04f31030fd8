// What lives and what is dead, by random commands on the host backend: a model of the rules
// (kernels/backend.h, kernels/direct_publication.h, kernels/owner_source.h, kernels/buffer_rings.h)
// says of each command how it ends, and what is alive after it; every rank must agree, for
// generations on end.
//
// All ranks draw the same commands from the same seed, each on its own thread with a model of its
// own, and meet in those that are collective. Old plans and targets stay in their hands.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/contract/model_group.h"
#include "tests/contract/rank_model.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

#if defined(PERIGEE_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr int kCommands = 10'000;
#else
constexpr int kCommands = 100'000;
#endif

int Commands() {
  const char* given = std::getenv("PERIGEE_LIFETIME_COMMANDS");
  return given == nullptr ? kCommands : std::atoi(given);
}

TEST(LifetimesModelTest, EveryRankAgreesWithTheModel) {
  const uint64_t seed = TestSeed();
  ModelGroup shared(seed);
  std::vector<std::unique_ptr<RankModel>> ranks;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kModelGeometry.ranks; ++rank) {
    ranks.push_back(std::make_unique<RankModel>(shared, rank, seed));
  }
  for (const auto& rank : ranks) {
    threads.emplace_back([&rank] { rank->Run(Commands()); });
  }
  for (std::thread& thread : threads) thread.join();
  if (shared.failed) return;
  // All ways to end were met, or the rules were not tried.
  for (const auto& rank : ranks) {
    for (const int count : rank->ends()) EXPECT_GT(count, Commands() / 1000);
    if (Commands() < 100'000) continue;  // too few for what is rare
    for (const auto& ending : RankModel::Endings()) {
      EXPECT_GT(rank->Count(ending), Commands() / 5000)
          << ending.first << " ending with '" << ending.second << "'";
    }
  }
  EXPECT_GT(shared.generation, 7u);
}

}  // namespace
}  // namespace perigee
