// The words of a command page that streams of the client's device write and wait for, which cannot
// make a system call.
#ifndef PERIGEE_PROTO_LOCAL_STREAM_WORDS_H_
#define PERIGEE_PROTO_LOCAL_STREAM_WORDS_H_

#include <atomic>
#include <cstdint>

#include "proto/local/command_page.h"
#include "proto/local/local_command.h"

namespace perigee {

// In CommandPage::done, when the attachment is over. A stream that waits for a word compares signed
// differences (CUDA driver API, cuStreamWaitValue64), for which UINT64_MAX is less than any count.
inline constexpr uint64_t kDoneForGood = INT64_MAX;

// Lets streams go that wait for no more than the first `count` commands.
inline void SetDone(CommandPage& page, uint64_t count) {
  std::atomic_ref<uint64_t>(page.done.count).store(count, std::memory_order_release);
}

// The word that says that the inputs of a command are there, and what it says then.
inline uint64_t& ReadyWord(CommandPage& page, uint64_t position) {
  return page.ready[position % kCommandSlots];
}
inline uint64_t ReadyValue(uint64_t position) { return position + 1; }

inline bool InputsReady(CommandPage& page, uint64_t position) {
  return std::atomic_ref<uint64_t>(ReadyWord(page, position)).load(std::memory_order_acquire) ==
         ReadyValue(position);
}

// A word by which a stream says that the last read of a dispatch-output slot is over: it sets it to
// the identity that the slot had. `word` is LocalReleaseSlot's.
inline uint64_t& ReadWord(CommandPage& page, int32_t word) { return page.read[word]; }
inline bool IsRead(CommandPage& page, const LocalReleaseSlot& release) {
  return std::atomic_ref<uint64_t>(ReadWord(page, release.word)).load(std::memory_order_acquire) ==
         release.slot.identity;
}

// The same for a graph, which stores 1 whoever has the slot. `index` is in [0, kReplayedWords).
inline uint64_t& ReplayedWord(CommandPage& page, int32_t index) { return page.replayed[index]; }
// Once for each time that it was set, if it is looked at in between.
inline bool TakeReplayed(CommandPage& page, int32_t index) {
  const std::atomic_ref<uint64_t> word(ReplayedWord(page, index));
  return word.load(std::memory_order_acquire) != 0 &&
         word.exchange(0, std::memory_order_acq_rel) != 0;
}

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_STREAM_WORDS_H_
