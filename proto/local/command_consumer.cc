#include "proto/local/command_consumer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/common/shared_words.h"
#include "proto/local/doorbell.h"
#include "proto/local/spin_budget.h"
#include "proto/local/stream_words.h"

namespace perigee {

CommandConsumer::CommandConsumer(CommandPage& page, const Clock& clock,
                                 const CommandConsumerOptions& options)
    : page_(page), clock_(clock), options_(options), last_active_(clock.Monotonic()) {}

absl::StatusOr<absl::optional<CommandEntry>> CommandConsumer::TryNext() {
  if (!broken_.ok()) return broken_;
  const uint64_t submitted = LoadCount(page_.client);
  if (submitted == taken_) return absl::optional<CommandEntry>();
  // Backwards is too far as well: the difference wraps.
  if (submitted - completed_ > kCommandSlots || submitted - taken_ > kCommandSlots) {
    broken_ = absl::InvalidArgumentError(absl::StrCat(
        "the command ring is broken: ", submitted, " commands submitted, after ", taken_,
        " taken and ", completed_, " completed; at most ", kCommandSlots, " can be under way"));
    return broken_;
  }
  const CommandEntry entry = LoadShared(page_.entries[taken_ % kCommandSlots]);
  if (entry.position != taken_) {
    broken_ = absl::InvalidArgumentError(absl::StrCat("the command ring is broken: entry ", taken_,
                                                      " says that it is ", entry.position));
    return broken_;
  }
  ++taken_;
  return absl::optional<CommandEntry>(entry);
}

absl::StatusOr<CommandEntry> CommandConsumer::Next(absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  while (true) {
    if (interrupted()) {
      return absl::CancelledError("the attachment is being ended");
    }
    absl::StatusOr<absl::optional<CommandEntry>> next = TryNext();
    if (!next.ok()) return next.status();
    if (next->has_value()) return **next;
    const absl::Duration now = clock_.Monotonic();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("no command ", taken_, " came"));
    }
    if (now < last_active_ + options_.spin) {
      SpinPause();
    } else {
      Sleep(std::min(deadline - now, options_.wait_slice));
    }
  }
}

void CommandConsumer::Sleep(absl::Duration longest) {
  DoorbellSleep sleep(page_.worker, page_.client);
  // After the doorbell was read: a command or an interrupt from now on changes it.
  if (LoadCount(page_.client) != taken_) return;
  if (interrupted_.load(std::memory_order_seq_cst)) return;
  sleep.Wait(longest);
}

absl::optional<PublicationTokenBytes> CommandConsumer::TokenOf(const CommandEntry& entry) const {
  if ((entry.flags & kCommandToken) == 0) return absl::nullopt;
  // The position has been held against this side's own count.
  return LoadShared(page_.tokens[entry.position % kCommandSlots]).bytes;
}

bool CommandConsumer::InputsReady(const CommandEntry& entry) const {
  if ((entry.flags & kCommandAwaitsInputs) == 0) return true;
  return perigee::InputsReady(page_, entry.position);
}

bool CommandConsumer::TakeRead(const LocalReleaseSlot& release) {
  return release.read == SlotRead::kByGraph ? TakeReplayed(page_, release.slot.index)
                                            : IsRead(page_, release);
}

void CommandConsumer::Complete(LocalCompletion completion) {
  PERIGEE_CHECK(completed_ < taken_);
  completion.position = completed_;
  WriteCompletion(page_.completions[completed_ % kCommandSlots], completion);
  ++completed_;
  SetDone(page_, completed_);
  StoreCount(page_.worker, completed_);
  last_active_ = clock_.Monotonic();
  RingIfAsleep(page_.worker, page_.client);
}

void CommandConsumer::End(const LocalCompletion& why) {
  PERIGEE_CHECK(!why.status.ok());
  WriteCompletion(page_.end, why);
  SetDone(page_, kDoneForGood);
  std::atomic_ref<uint32_t>(page_.worker.ended).store(1, std::memory_order_seq_cst);
  Ring(page_.worker);
}

void CommandConsumer::Interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  // The client's doorbell: it is the one that this side sleeps on.
  Ring(page_.client);
}

}  // namespace perigee
