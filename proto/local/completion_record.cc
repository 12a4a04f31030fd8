#include "proto/local/completion_record.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr uint32_t kLastCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr int32_t kMaxLostRanks = 128;
constexpr int kReadAttempts = 64;
constexpr size_t kFactWords = sizeof(CompletionFacts) / sizeof(uint64_t);
static_assert(sizeof(CompletionFacts) % sizeof(uint64_t) == 0);

std::atomic_ref<uint64_t> Lock(CompletionRecord& record) {
  return std::atomic_ref<uint64_t>(record.lock);
}

uint64_t* Words(CompletionRecord& record) { return reinterpret_cast<uint64_t*>(&record) + 1; }

size_t MessageWords(uint32_t message_bytes) { return (message_bytes + 7) / 8; }

// A release and an acquire for each word instead of one fence, which the thread sanitizer does not
// know: no word is stored before the lock says so, nor loaded after the second look at it.
void StoreWords(uint64_t* to, const void* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(from) + i * sizeof(word), sizeof(word));
    std::atomic_ref<uint64_t>(to[i]).store(word, std::memory_order_release);
  }
}

void LoadWords(void* to, uint64_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = std::atomic_ref<uint64_t>(from[i]).load(std::memory_order_acquire);
    std::memcpy(static_cast<char*>(to) + i * sizeof(word), &word, sizeof(word));
  }
}

CompletionFacts FactsOf(const LocalCompletion& completion) {
  CompletionFacts facts;
  facts.position = completion.position;
  facts.generation = completion.generation.value;
  facts.sequence = completion.sequence.value;
  facts.expected = completion.expected;
  facts.seen = completion.seen;
  facts.duration_ns = absl::ToInt64Nanoseconds(completion.duration);
  for (const int32_t rank : completion.lost) {
    if (rank >= 0 && rank < kMaxLostRanks) facts.lost_ranks[rank / 64] |= uint64_t{1} << rank % 64;
  }
  facts.code = static_cast<uint32_t>(completion.status.code());
  facts.kind = completion.kind;
  facts.phase = completion.phase;
  facts.rank = completion.rank;
  facts.awaited_rank = completion.awaited_rank;
  facts.token = completion.token;
  facts.k = completion.k;
  facts.slot_identity = completion.slot.identity;
  facts.slot = completion.slot.index;
  facts.message_bytes =
      static_cast<uint32_t>(std::min(completion.status.message().size(), kCompletionMessageBytes));
  completion.reason.copy(facts.reason, sizeof(facts.reason) - 1);
  return facts;
}

absl::Status Check(const CompletionFacts& facts) {
  const char* wrong = nullptr;
  if (facts.code > kLastCode) wrong = "code";
  if (facts.message_bytes > kCompletionMessageBytes) wrong = "message length";
  if (facts.reason[sizeof(facts.reason) - 1] != 0) wrong = "reason";
  if (facts.phase > 2) wrong = "phase";
  if (wrong == nullptr) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a completion record with a ", wrong,
                                          " that cannot be: the control page is damaged"));
}

LocalCompletion CompletionOf(const CompletionFacts& facts, const char* message) {
  LocalCompletion completion;
  completion.position = facts.position;
  completion.status = absl::Status(static_cast<absl::StatusCode>(facts.code),
                                   absl::string_view(message, facts.message_bytes));
  completion.reason = facts.reason;
  completion.generation = Generation(facts.generation);
  completion.sequence = Sequence(facts.sequence);
  completion.kind = facts.kind;
  completion.rank = facts.rank;
  completion.duration = absl::Nanoseconds(facts.duration_ns);
  for (int32_t rank = 0; rank < kMaxLostRanks; ++rank) {
    if ((facts.lost_ranks[rank / 64] >> rank % 64 & 1) != 0) completion.lost.push_back(rank);
  }
  completion.phase = facts.phase;
  completion.awaited_rank = facts.awaited_rank;
  completion.token = facts.token;
  completion.k = facts.k;
  completion.slot = {facts.slot, facts.slot_identity};
  completion.expected = facts.expected;
  completion.seen = facts.seen;
  return completion;
}

}  // namespace

void WriteCompletion(CompletionRecord& record, const LocalCompletion& completion) {
  const CompletionFacts facts = FactsOf(completion);
  char message[kCompletionMessageBytes] = {};
  completion.status.message().copy(message, facts.message_bytes);
  // Whatever the record held before, odd while it is written.
  const uint64_t writing = Lock(record).load(std::memory_order_relaxed) | 1;
  Lock(record).store(writing, std::memory_order_relaxed);
  StoreWords(Words(record), &facts, kFactWords);
  StoreWords(Words(record) + kFactWords, message, MessageWords(facts.message_bytes));
  Lock(record).store(writing + 1, std::memory_order_release);
}

absl::StatusOr<LocalCompletion> ReadCompletion(CompletionRecord& record) {
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const uint64_t before = Lock(record).load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    CompletionFacts facts;
    char message[kCompletionMessageBytes];
    LoadWords(&facts, Words(record), kFactWords);
    const absl::Status status = Check(facts);
    if (status.ok()) {
      LoadWords(message, Words(record) + kFactWords, MessageWords(facts.message_bytes));
    }
    if (Lock(record).load(std::memory_order_relaxed) != before) continue;
    if (!status.ok()) return status;
    return CompletionOf(facts, message);
  }
  return absl::UnavailableError("a completion record is being written, or its writer has died");
}

}  // namespace perigee
