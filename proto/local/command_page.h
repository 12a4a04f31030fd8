// The control page of a local client's attachment: memory that one client process and one worker
// share, through which commands go one way and completions the other. Plain structs; both processes
// are of one machine. Who may write what:
//
//   header                the worker, before the page is handed out
//   client, entries       the client
//   tokens                the client
//   ready, read, replayed the client, or a stream of its device
//   worker, completions   the worker
//   done                  the worker; when it has gone, the client
//
// The client can write every byte of it at any time, so the worker takes nothing from the page but
// copies, and keeps what it counts for itself (command_consumer.h). A client that damages the page
// damages its own attachment only.
//
// Commands and completions are numbered alike, from position 0; number p lies at p % kCommandSlots.
// An entry is published by `submitted`, a completion by `completed`. Both only grow, and at most
// kCommandSlots commands are between them: so the completion of p stays readable until command
// p + kCommandSlots completes.
#ifndef PERIGEE_PROTO_LOCAL_COMMAND_PAGE_H_
#define PERIGEE_PROTO_LOCAL_COMMAND_PAGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "proto/support/publication_token.h"

namespace perigee {

inline constexpr uint64_t kCommandPageMagic = 0x3145474150444d43;  // "CMDPAGE1"
// Changes with every change of a struct here or of what a field means.
inline constexpr uint32_t kCommandPageVersion = 5;
inline constexpr uint32_t kCommandSlots = 64;
// Words of CommandPage::read, more than releases whose readers can be under way, and of
// CommandPage::replayed, one for each slot that there may be.
inline constexpr uint32_t kReadWords = 256;
inline constexpr uint32_t kReplayedWords = 64;

// An output slot (docs/rings.md) that something has taken, as commands and completions name it.
struct LocalSlot {
  int32_t index = -1;
  uint64_t identity = 0;  // of a dispatch-output slot the sequence of its dispatch; 0: none
  friend constexpr bool operator==(const LocalSlot&, const LocalSlot&) = default;
};

// One command as it travels; fields that its kind does not use are 0 (local_command.h).
struct alignas(64) CommandEntry {
  uint64_t position = 0;
  uint64_t generation = 0;
  uint64_t sequence = 0;  // of a collective operation; 0 for the others
  uint64_t plan = 0;
  uint64_t source_plan = 0;  // or the identity of an output slot
  uint64_t weights_version = 0;
  uint32_t kind = 0;   // CommandKind
  uint16_t flags = 0;  // kCommand...
  int16_t slot = 0;    // index of an output slot
  int32_t token_count = 0;
  int32_t layer = 0;

  friend constexpr bool operator==(const CommandEntry&, const CommandEntry&) = default;
};
static_assert(sizeof(CommandEntry) == 64);

// A publication token, where its command brings one (kCommandToken); in a place apart, so that all
// other commands stay on one cache line.
struct alignas(8) TokenEntry {
  PublicationTokenBytes bytes = {};
};
static_assert(sizeof(TokenEntry) == 96);

// How a command ended, or why the attachment did (completion_record.h has it in C++ terms).
struct CompletionFacts {
  uint64_t position = 0;
  uint64_t generation = 0;
  uint64_t sequence = 0;
  int64_t expected = 0;
  int64_t seen = 0;
  int64_t duration_ns = 0;
  uint64_t lost_ranks[2] = {};  // bit r % 64 of word r / 64
  uint64_t slot_identity = 0;   // of the output slot taken; 0: none
  uint32_t code = 0;            // absl::StatusCode
  uint32_t kind = 0;            // CommandKind
  uint32_t phase = 0;
  int32_t rank = -1;
  int32_t awaited_rank = -1;
  int32_t token = -1;
  int32_t k = -1;
  uint32_t message_bytes = 0;
  int32_t slot = -1;  // index of the output slot taken
  uint32_t reserved = 0;
  char reason[24] = {};  // ends with a zero
};
static_assert(sizeof(CompletionFacts) == 136);

inline constexpr size_t kCompletionMessageBytes = 880;

struct alignas(64) CompletionRecord {
  uint64_t lock = 0;  // odd while the rest is being written; grows
  CompletionFacts facts;
  char message[kCompletionMessageBytes] = {};
};
static_assert(sizeof(CompletionRecord) == 1024);

struct alignas(64) CommandPageHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t slots = 0;
  uint64_t generation = 0;
  uint64_t buffer = 0;
  uint64_t first_sequence = 0;  // of the attachment's first collective operation
  int32_t rank = -1;
  int32_t ranks = 0;
  uint64_t reserved[2] = {};
};
static_assert(sizeof(CommandPageHeader) == 64);

// What one side tells the other, on a cache line of its own.
struct alignas(64) CommandPageWords {
  // Commands submitted (the client's) or completed (the worker's) so far.
  uint64_t count = 0;
  uint32_t doorbell =
      0;                // futex word that the other side sleeps on; changes with what it waits for
  uint32_t asleep = 0;  // whether this side sleeps, or is about to, on the other's doorbell
  uint32_t ended = 0;   // the worker's: not 0 when the attachment is over; `end` says why
};
static_assert(sizeof(CommandPageWords) == 64);

struct alignas(64) CommandPageDone {
  uint64_t count = 0;  // as the worker's; kDoneForGood when the attachment is over
};

struct CommandPage {
  CommandPageHeader header;
  CommandPageWords client;
  CommandPageWords worker;
  // For streams of the client's device (stream_words.h): ready[p % kCommandSlots] is p + 1 when the
  // inputs of command p are there (kCommandAwaitsInputs); command p has ended when done.count is at
  // least p + 1.
  uint64_t ready[kCommandSlots] = {};
  // Likewise, of dispatch-output slots whose last read is over: read[word] is the identity that the
  // slot had, where its release names the word, or replayed[index] is not 0, and 0 again once the
  // worker has seen it (SlotRead), or has ended a dispatch into the slot well.
  uint64_t read[kReadWords] = {};
  uint64_t replayed[kReplayedWords] = {};
  CommandPageDone done;
  CommandEntry entries[kCommandSlots];
  TokenEntry tokens[kCommandSlots];
  CompletionRecord completions[kCommandSlots];
  CompletionRecord end;
};

// Of the memory that holds a page.
inline constexpr size_t kCommandPageBytes = (sizeof(CommandPage) + 4095) / 4096 * 4096;

// What an attachment is for, as its page has it.
struct CommandPageIdentity {
  Generation generation;
  BufferId buffer;
  RankId rank;
  int32_t ranks = 0;
  Sequence first_sequence;

  friend bool operator==(const CommandPageIdentity&, const CommandPageIdentity&) = default;
};

// The worker's: makes a page of zeroed memory of kCommandPageBytes, 64-byte aligned, that nobody
// else has yet.
CommandPage& FormatCommandPage(absl::Span<std::byte> memory, const CommandPageIdentity& identity);

// The client's: the page in `memory`. INVALID_ARGUMENT, naming what was found and expected: too
// small or unaligned, no page, another version, or ranks that cannot be.
absl::StatusOr<CommandPage*> OpenCommandPage(absl::Span<std::byte> memory);
CommandPageIdentity IdentityOf(const CommandPage& page);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_COMMAND_PAGE_H_
