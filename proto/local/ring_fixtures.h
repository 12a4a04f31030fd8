// What the tests of the command ring share: pages, and random commands and completions.
#ifndef PERIGEE_PROTO_LOCAL_RING_FIXTURES_H_
#define PERIGEE_PROTO_LOCAL_RING_FIXTURES_H_

#include <cstdint>
#include <random>

#include "proto/local/command_page.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"

namespace perigee {

// PERIGEE_SEED if it is set, else a fresh one. Prints it either way.
uint64_t RingTestSeed();
// The value of an environment variable, or `otherwise`: `slow` under a sanitizer.
int64_t RingTestCount(const char* variable, int64_t otherwise, int64_t slow);

inline constexpr CommandPageIdentity kTestIdentity{Generation(7), BufferId(3), RankId(2), 4,
                                                   Sequence(11)};
inline constexpr CommandLimits kTestLimits{Generation(7), Sequence(11), 16, 3, true, true};

// Shared memory that a forked child has too, with a formatted page in it.
class TestPage {
 public:
  TestPage();
  ~TestPage();
  TestPage(const TestPage&) = delete;
  TestPage& operator=(const TestPage&) = delete;

  absl::Span<std::byte> memory() const { return {memory_, kCommandPageBytes}; }
  CommandPage& page() const { return *page_; }

 private:
  std::byte* memory_;
  CommandPage* page_;
};

// Within kTestLimits; every kind, with its sequence where it is collective.
LocalCommand RandomCommand(std::mt19937_64& random);
// The publication token that it brings, or none.
absl::optional<PublicationTokenBytes> TokenOf(const LocalCommand& command);
// With whatever a record can hold, ok or not.
LocalCompletion RandomCompletion(std::mt19937_64& random);
void ExpectSame(const LocalCompletion& found, const LocalCompletion& expected);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_RING_FIXTURES_H_
