#include "proto/local/ring_fixtures.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

int32_t Between(std::mt19937_64& random, int32_t first, int32_t last) {
  return std::uniform_int_distribution<int32_t>(first, last)(random);
}

int32_t RandomChoice(std::mt19937_64& random) { return Between(random, kAnySlot, INT16_MAX); }

// Or none.
absl::optional<PublicationTokenBytes> RandomToken(std::mt19937_64& random) {
  if (random() % 2 == 0) return absl::nullopt;
  PublicationTokenBytes token;
  for (char& byte : token) byte = static_cast<char>(random());
  return token;
}

LocalSlot RandomSlot(std::mt19937_64& random) {
  return {Between(random, INT16_MIN, INT16_MAX), random()};
}

}  // namespace

uint64_t RingTestSeed() {
  const char* given = std::getenv("PERIGEE_SEED");
  const uint64_t seed = given != nullptr
                            ? std::strtoull(given, nullptr, 10)
                            : (uint64_t{std::random_device()()} << 32) | std::random_device()();
  std::printf("PERIGEE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

int64_t RingTestCount(const char* variable, int64_t otherwise, int64_t slow) {
  const char* given = std::getenv(variable);
  if (given != nullptr) return std::strtoll(given, nullptr, 10);
#if defined(PERIGEE_TSAN) || defined(__SANITIZE_ADDRESS__)
  constexpr bool kSlow = true;
#else
  constexpr bool kSlow = false;
#endif
  return kSlow ? slow : otherwise;
}

TestPage::TestPage() {
  void* const memory =
      mmap(nullptr, kCommandPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PERIGEE_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
  page_ = &FormatCommandPage(this->memory(), kTestIdentity);
}

TestPage::~TestPage() { munmap(memory_, kCommandPageBytes); }

LocalCommand RandomCommand(std::mt19937_64& random) {
  const LocalPlanId plan(random() | 1);
  const bool weighted = random() % 2 == 0;
  const int32_t tokens = Between(random, 0, kTestLimits.tokens);
  const int32_t layer = Between(random, 0, kTestLimits.layers - 1);
  const uint64_t version = random() | 1;
  const LocalOperation operations[] = {
      LocalEmpty{},
      LocalDispatch{plan, tokens, weighted},
      LocalDispatchWithPlan{plan, tokens, weighted},
      LocalPrefetchWeights{plan, layer, version},
      LocalRunExperts{plan, layer, version, weighted},
      LocalCombine{plan, weighted, weighted && random() % 2 == 0},
      LocalBarrier{},
      LocalReleasePlan{plan},
      LocalClonePlan{plan, LocalPlanId(random() | 1)},
      LocalReduceGradients{plan, layer},
      LocalPrepareDispatch{plan, tokens},
      LocalPreparePublication{plan, weighted, RandomToken(random)},
      LocalStoreRows{plan},
      LocalPublish{plan},
      LocalPrepareSource{plan, tokens, random() % 2 == 0, weighted},
      LocalMaterialise{plan},
      LocalReleaseSlot{RandomSlot(random),
                       random() % 2 == 0 ? LocalRing::kDispatchOutput : LocalRing::kExpertOutput},
      LocalReleaseSlot{RandomSlot(random), LocalRing::kDispatchOutput, SlotRead::kByGraph},
      LocalReleaseSlot{RandomSlot(random), LocalRing::kDispatchOutput, SlotRead::kByStream,
                       Between(random, 0, kReadWords - 1)},
      LocalDispatch{plan, tokens, weighted, RandomChoice(random)},
      LocalDispatchWithPlan{plan, tokens, weighted, RandomChoice(random)},
      LocalRunExperts{plan, layer, version, weighted, RandomSlot(random), random() % 2 == 0},
      LocalCombine{.plan = plan, .slot = RandomSlot(random)},
      LocalCombine{plan, weighted, weighted, true},
  };
  LocalCommand command;
  command.operation = operations[random() % std::size(operations)];
  command.awaits_inputs = random() % 4 == 0;
  if (IsCollective(KindOf(command.operation))) command.sequence = kTestLimits.next_sequence;
  return command;
}

LocalCompletion RandomCompletion(std::mt19937_64& random) {
  LocalCompletion completion;
  completion.position = random();
  completion.generation = Generation(random());
  completion.sequence = Sequence(random());
  completion.kind = static_cast<uint32_t>(random() % 18);
  if (random() % 2 == 0) completion.slot = RandomSlot(random);
  completion.rank = Between(random, 0, 127);
  completion.duration = absl::Nanoseconds(Between(random, 0, 1 << 30));
  if (random() % 2 == 0) return completion;
  const size_t length = random() % (kCompletionMessageBytes + 1);
  completion.status = absl::Status(static_cast<absl::StatusCode>(1 + random() % 16),
                                   std::string(length, static_cast<char>('a' + random() % 26)));
  completion.reason = std::string(random() % 24, 'R');
  for (int32_t rank = 0; rank < 128; ++rank) {
    if (random() % 16 == 0) completion.lost.push_back(rank);
  }
  completion.phase = static_cast<uint32_t>(random() % 3);
  completion.awaited_rank = Between(random, -1, 127);
  completion.token = Between(random, -1, 1000);
  completion.k = Between(random, -1, 8);
  completion.expected = static_cast<int64_t>(random());
  completion.seen = static_cast<int64_t>(random());
  return completion;
}

absl::optional<PublicationTokenBytes> TokenOf(const LocalCommand& command) {
  const auto* prepare = std::get_if<LocalPreparePublication>(&command.operation);
  return prepare == nullptr ? absl::nullopt : prepare->token;
}

void ExpectSame(const LocalCompletion& found, const LocalCompletion& expected) {
  EXPECT_EQ(found.position, expected.position);
  EXPECT_EQ(found.status, expected.status);
  EXPECT_EQ(found.reason, expected.reason);
  EXPECT_EQ(found.generation, expected.generation);
  EXPECT_EQ(found.sequence, expected.sequence);
  EXPECT_EQ(found.kind, expected.kind);
  EXPECT_EQ(found.slot, expected.slot);
  EXPECT_EQ(found.rank, expected.rank);
  EXPECT_EQ(found.duration, expected.duration);
  EXPECT_EQ(found.lost, expected.lost);
  EXPECT_EQ(found.phase, expected.phase);
  EXPECT_EQ(found.awaited_rank, expected.awaited_rank);
  EXPECT_EQ(found.token, expected.token);
  EXPECT_EQ(found.k, expected.k);
  EXPECT_EQ(found.expected, expected.expected);
  EXPECT_EQ(found.seen, expected.seen);
}

}  // namespace perigee
