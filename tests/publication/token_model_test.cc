// Whatever is issued, lost, repeated, crashed and presented: never two successes for one token,
// never one in a generation that is over or at another rank, every refusal with its reason, every
// grant spendable or burnt. PERIGEE_SEED repeats a run, PERIGEE_TOKEN_COMMANDS makes it longer.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/publication/token_world.h"

namespace perigee {
namespace {

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  uint64_t number = 0;
  return given != nullptr && absl::SimpleAtoi(given, &number) ? number : otherwise;
}

TEST(TokenModel, WhateverHappensATokenIsGoodOnceInItsPlaceAndTime) {
  const uint64_t seed = NumberFrom("PERIGEE_SEED", std::random_device()());
  const uint64_t commands =
      std::max<uint64_t>(NumberFrom("PERIGEE_TOKEN_COMMANDS", 0), uint64_t{100000});
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  TokenWorld world(seed);
  uint64_t done = 0;
  for (; done < commands && !HasFailure(); ++done) world.Step();
  world.CheckLedgers();
  EXPECT_FALSE(HasFailure()) << "command " << done << " of seed " << seed;

  for (const auto& [what, times] : world.tally()) std::cout << what << ": " << times << "\n";
  for (const char* what : {"success",
                           "SPENT",
                           "STALE_GENERATION",
                           "WRONG_RANK",
                           "WRONG_BUFFER",
                           "UNKNOWN",
                           "EXPIRED",
                           "FORGED",
                           "crash before durability",
                           "crash after durability",
                           "worker restarted",
                           "coordinator restarted",
                           "generation opened",
                           "grant lost",
                           "grant delivered twice",
                           "grant of another generation",
                           "answer repeated",
                           "lost answer got later",
                           "token drawn",
                           "tokens issued",
                           "nothing left to draw"}) {
    const auto found = world.tally().find(what);
    EXPECT_TRUE(found != world.tally().end() && found->second > 0) << what << " never happened";
  }
}

}  // namespace
}  // namespace perigee
