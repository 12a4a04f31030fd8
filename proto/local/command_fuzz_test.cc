// A client that writes what it likes: entries with any field wrong, and pages scribbled over.
// PERIGEE_FUZZ_ENTRIES entries are decoded, 1,000,000 where it is not set, under a sanitizer
// 50,000.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "proto/local/command_consumer.h"
#include "proto/local/command_producer.h"
#include "proto/local/ring_fixtures.h"

namespace perigee {
namespace {

int64_t FuzzEntries() { return RingTestCount("PERIGEE_FUZZ_ENTRIES", 1000000, 50000); }

// What the format says of the flags but kCommandAwaitsInputs, 2, which every kind may have.
bool FlagsMayPass(const CommandEntry& entry) {
  const uint32_t flags = entry.flags & ~2u;
  const auto within = [&](uint32_t allowed) { return (flags & ~allowed) == 0; };
  switch (entry.kind) {
    case 2:
    case 3:
      return within(1 + 32);
    case 5:
      return within(1 + 32 + 64) && ((flags & 64) == 0 || (flags & 32) != 0);
    case 6:
      return flags == 32 || (within(1 + 4 + 512) && ((flags & 4) == 0 || (flags & 1) != 0));
    case 12:
      return within(1 + 8);
    case 15:
      return within(1 + 16);
    case 17:
      return flags == 0 || flags == 64 || flags == 128 || flags == 256;
    default:
      return flags == 0;
  }
}

// A release by a stream has its word there.
int32_t MostTokenCount(const CommandEntry& entry) {
  if (entry.kind == 17) return (entry.flags & 128) != 0 ? 255 : 0;
  return entry.kind == 2 || entry.kind == 3 || entry.kind == 11 || entry.kind == 15 ? 16 : 0;
}

// What the format says, field by field.
bool MayPass(const CommandEntry& entry) {
  const auto one_of = [&](std::initializer_list<uint32_t> kinds) {
    return std::find(kinds.begin(), kinds.end(), entry.kind) != kinds.end();
  };
  const bool in_slot = (entry.flags & 32) != 0 || entry.kind == 17;
  const auto exactly_where = [](bool used, bool given) { return used == given; };
  return entry.kind >= 1 && entry.kind <= 17 && entry.generation == 7 && FlagsMayPass(entry) &&
         entry.sequence == (one_of({2, 3, 4, 6, 7, 10, 11, 14, 15, 16}) ? 11 : 0) &&
         exactly_where(!one_of({1, 7, 17}), entry.plan != 0) &&
         (in_slot ? entry.slot >= -1 || !one_of({2, 3}) : entry.slot == 0) &&
         ((in_slot && !one_of({2, 3})) || exactly_where(one_of({9}), entry.source_plan != 0)) &&
         exactly_where(one_of({4, 5}), entry.weights_version != 0) && entry.token_count >= 0 &&
         entry.token_count <= MostTokenCount(entry) && entry.layer >= 0 &&
         entry.layer <= (one_of({4, 5, 10}) ? 2 : 0);
}

uint64_t AnyNumber(std::mt19937_64& random) {
  static constexpr uint64_t kEdges[] = {
      0,          1,         2,  3,  7,  8,  9,     10,         11,
      12,         13,        14, 15, 16, 17, ~0ull, 1ull << 31, (1ull << 31) - 1,
      1ull << 32, 1ull << 63};
  return random() % 4 == 0 ? random() : kEdges[random() % std::size(kEdges)];
}

// A valid entry with up to three of its fields overwritten.
CommandEntry AnyEntry(std::mt19937_64& random) {
  CommandEntry entry = EncodeCommand(RandomCommand(random), kTestLimits.generation);
  for (uint64_t changes = random() % 4; changes > 0; --changes) {
    const uint64_t value = AnyNumber(random);
    switch (random() % 11) {
      case 0:
        entry.position = value;
        break;
      case 1:
        entry.generation = value;
        break;
      case 2:
        entry.sequence = value;
        break;
      case 3:
        entry.plan = value;
        break;
      case 4:
        entry.source_plan = value;
        break;
      case 5:
        entry.weights_version = value;
        break;
      case 6:
        entry.kind = static_cast<uint32_t>(value);
        break;
      case 7:
        entry.flags = static_cast<uint16_t>(value);
        break;
      case 9:
        entry.slot = static_cast<int16_t>(value);
        break;
      case 8:
        entry.token_count = static_cast<int32_t>(value);
        break;
      default:
        entry.layer = static_cast<int32_t>(value);
        break;
    }
  }
  return entry;
}

// As CommandConsumer::TokenOf has it, of any bytes.
absl::optional<PublicationTokenBytes> AnyTokenFor(const CommandEntry& entry) {
  if ((entry.flags & kCommandToken) == 0) return absl::nullopt;
  return PublicationTokenBytes{static_cast<char>(entry.plan)};
}

TEST(CommandFuzzTest, NoEntryPassesThatShouldNotAndNoneFailsThatShould) {
  std::mt19937_64 random(RingTestSeed());
  int64_t passed = 0, refused = 0;
  for (int64_t i = 0; i < FuzzEntries(); ++i) {
    const CommandEntry entry = AnyEntry(random);
    const absl::StatusOr<LocalCommand> command =
        DecodeCommand(entry, kTestLimits, AnyTokenFor(entry));
    ASSERT_EQ(command.ok(), MayPass(entry)) << command.status() << " kind " << entry.kind;
    if (command.ok()) {
      ++passed;
      CommandEntry again = EncodeCommand(*command, kTestLimits.generation);
      again.position = entry.position;
      ASSERT_EQ(again, entry);
      continue;
    }
    ++refused;
    ASSERT_TRUE(command.status().code() == absl::StatusCode::kInvalidArgument ||
                command.status().code() == absl::StatusCode::kFailedPrecondition);
    ASSERT_FALSE(command.status().message().empty());
  }
  EXPECT_GT(passed, FuzzEntries() / 10);
  EXPECT_GT(refused, FuzzEntries() / 10);
}

// A page between two guards, which nobody who minds its bounds touches.
class GuardedPage {
 public:
  GuardedPage() {
    std::memset(memory_.front, 0x5a, sizeof(memory_.front));
    std::memset(memory_.back, 0x5a, sizeof(memory_.back));
    Format();
  }
  void Format() {
    std::memset(memory_.page, 0, sizeof(memory_.page));
    FormatCommandPage(absl::MakeSpan(memory_.page), kTestIdentity);
  }
  CommandPage& page() { return *reinterpret_cast<CommandPage*>(memory_.page); }
  // Atomically, as another process's stores look to this one.
  void Scribble(size_t word, uint64_t value) {
    uint64_t& at = *reinterpret_cast<uint64_t*>(memory_.page + word * sizeof(value));
    std::atomic_ref<uint64_t>(at).store(value, std::memory_order_relaxed);
  }
  bool guards_hold() const {
    const auto holds = [](const std::byte& byte) { return byte == std::byte{0x5a}; };
    return std::all_of(std::begin(memory_.front), std::end(memory_.front), holds) &&
           std::all_of(std::begin(memory_.back), std::end(memory_.back), holds);
  }

 private:
  struct alignas(4096) {
    std::byte front[4096];
    std::byte page[kCommandPageBytes];
    std::byte back[4096];
  } memory_;
};

// Word 8 of the page is the client's count, and behind the words come the entries: what matters
// most is hit most.
constexpr size_t kFirstEntryWord = offsetof(CommandPage, entries) / sizeof(uint64_t);
size_t AnyWord(std::mt19937_64& random) {
  switch (random() % 3) {
    case 0:
      return 8 + random() % 16;
    case 1:
      return kFirstEntryWord + random() % (kCommandSlots * sizeof(CommandEntry) / sizeof(uint64_t));
    default:
      return random() % (sizeof(CommandPage) / sizeof(uint64_t));
  }
}
static_assert(offsetof(CommandPage, client) == 8 * sizeof(uint64_t));

TEST(CommandFuzzTest, ThePageMayHoldAnything) {
  std::mt19937_64 random(RingTestSeed());
  GuardedPage memory;
  const CommandConsumerOptions options{absl::ZeroDuration(), absl::ZeroDuration()};
  int64_t broken = 0, taken = 0;
  for (int64_t pages = 0; pages < FuzzEntries() / 50; ++pages) {
    memory.Format();
    CommandConsumer consumer(memory.page(), RealClock(), options);
    CommandProducer producer(memory.page(), RealClock(),
                             {absl::ZeroDuration(), absl::ZeroDuration(), nullptr});
    for (int step = 0; step < 100; ++step) {
      if (random() % 2 == 0) (void)producer.Submit(RandomCommand(random).operation);
      if (random() % 8 == 0) memory.Scribble(AnyWord(random), AnyNumber(random));
      const absl::StatusOr<absl::optional<CommandEntry>> next = consumer.TryNext();
      if (!next.ok()) {
        ++broken;
        ASSERT_EQ(consumer.TryNext().status(), next.status());
        break;
      }
      if (next->has_value()) {
        ++taken;
        ASSERT_EQ((*next)->position, consumer.taken() - 1);
        ASSERT_EQ(DecodeCommand(**next, kTestLimits, consumer.TokenOf(**next)).ok(),
                  MayPass(**next));
      }
      ASSERT_LE(consumer.taken() - consumer.completed(), kCommandSlots);
      if (consumer.taken() > consumer.completed() && random() % 2 == 0) {
        consumer.Complete(RandomCompletion(random));
      }
      (void)producer.Poll(AnyNumber(random));
      (void)producer.Wait(consumer.completed(), absl::ZeroDuration());
    }
  }
  EXPECT_TRUE(memory.guards_hold());
  EXPECT_GT(broken, 0);
  EXPECT_GT(taken, FuzzEntries() / 50);
}

TEST(CommandFuzzTest, AnotherThreadMayScribbleMeanwhile) {
  const uint64_t seed = RingTestSeed();
  GuardedPage memory;
  std::atomic<bool> done = false;
  std::thread scribbler([&] {
    std::mt19937_64 random(seed);
    while (!done) {
      // Counts that a client could have, so that the consumer gets past them to the entries.
      if (random() % 2 == 0) memory.Scribble(8, random() % 4);
      memory.Scribble(kFirstEntryWord + random() % 64, random() % 4);
    }
  });
  int64_t taken = 0;
  // On busy cores the other thread may not have run by then: longer, as long as nothing has come.
  for (int64_t i = 0; i < FuzzEntries() || (taken == 0 && i < 1000 * FuzzEntries()); ++i) {
    if (taken == 0) std::this_thread::yield();
    CommandConsumer consumer(memory.page(), RealClock(),
                             {absl::ZeroDuration(), absl::Microseconds(1)});
    while (true) {
      const absl::StatusOr<CommandEntry> entry = consumer.Next(absl::Microseconds(1));
      if (!entry.ok()) break;
      ++taken;
      // A private copy does not change while it is looked at.
      const absl::StatusOr<LocalCommand> command =
          DecodeCommand(*entry, kTestLimits, consumer.TokenOf(*entry));
      ASSERT_EQ(command.ok(), MayPass(*entry));
      consumer.Complete(LocalCompletion());
      if (consumer.taken() > 100) break;
    }
  }
  done = true;
  scribbler.join();
  EXPECT_TRUE(memory.guards_hold());
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace perigee
