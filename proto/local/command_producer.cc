#include "proto/local/command_producer.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/common/shared_words.h"
#include "proto/local/command_room.h"
#include "proto/local/doorbell.h"
#include "proto/local/spin_budget.h"

namespace perigee {

CommandProducer::CommandProducer(CommandPage& page, const Clock& clock,
                                 CommandProducerOptions options)
    : page_(page),
      clock_(clock),
      options_(std::move(options)),
      generation_(IdentityOf(page).generation),
      next_sequence_(IdentityOf(page).first_sequence) {}

absl::StatusOr<uint64_t> CommandProducer::Completed() {
  const uint64_t completed = LoadCount(page_.worker);
  if (completed < completed_ || completed > submitted_) {
    return absl::DataLossError(absl::StrCat("the control page is damaged: ", completed, " of ",
                                            submitted_, " commands completed, ", completed_,
                                            " before"));
  }
  completed_ = completed;
  return completed;
}

absl::Status CommandProducer::Ended() {
  if (std::atomic_ref<uint32_t>(page_.worker.ended).load(std::memory_order_seq_cst) == 0) {
    return absl::OkStatus();
  }
  const absl::StatusOr<LocalCompletion> why = ReadCompletion(page_.end);
  if (!why.ok()) return why.status();
  if (!why->status.ok()) return why->status;
  return absl::DataLossError("the control page is damaged: the attachment ended without an error");
}

absl::optional<LocalCompletion> CommandProducer::End() {
  if (std::atomic_ref<uint32_t>(page_.worker.ended).load(std::memory_order_seq_cst) == 0) {
    return absl::nullopt;
  }
  absl::StatusOr<LocalCompletion> why = ReadCompletion(page_.end);
  if (!why.ok() || why->status.ok()) return absl::nullopt;
  return *std::move(why);
}

absl::Status CommandProducer::CheckRoomFor(size_t count) {
  absl::Status status = Ended();
  if (!status.ok()) return status;
  const absl::StatusOr<uint64_t> completed = Completed();
  if (!completed.ok()) return completed.status();
  return CheckRoom(count, submitted_ - *completed, *completed);
}

absl::StatusOr<uint64_t> CommandProducer::SubmitProgram(absl::Span<const LocalOperation> operations,
                                                        bool awaits_inputs) {
  const absl::Status status = CheckRoomFor(operations.size());
  if (!status.ok()) return status;
  const uint64_t first = submitted_;
  for (const LocalOperation& operation : operations) {
    Write(submitted_++, operation, awaits_inputs);
    awaits_inputs = false;
  }
  StoreCount(page_.client, submitted_);
  RingIfAsleep(page_.client, page_.worker);
  return first;
}

void CommandProducer::Write(uint64_t position, const LocalOperation& operation,
                            bool awaits_inputs) {
  CommandEntry entry = EncodeCommand({next_sequence_, operation, awaits_inputs}, generation_);
  entry.position = position;
  if (const auto* prepare = std::get_if<LocalPreparePublication>(&operation);
      prepare != nullptr && prepare->token) {
    StoreShared(page_.tokens[position % kCommandSlots], TokenEntry{*prepare->token});
  }
  StoreShared(page_.entries[position % kCommandSlots], entry);
  if (TakesSequence(entry)) next_sequence_ = next_sequence_.Next();
}

absl::StatusOr<absl::optional<LocalCompletion>> CommandProducer::Poll(uint64_t position) {
  if (position >= submitted_ || submitted_ - position > 2 * uint64_t{kCommandSlots}) {
    return absl::OutOfRangeError(absl::StrCat("command ", position, " of ", submitted_,
                                              " submitted is not, or no longer, known"));
  }
  // Before the count: who has ended the attachment completes nothing afterwards.
  const absl::Status ended = Ended();
  const absl::StatusOr<uint64_t> completed = Completed();
  if (!completed.ok()) return completed.status();
  if (position >= *completed) {
    if (!ended.ok()) return ended;
    return absl::optional<LocalCompletion>();
  }
  const absl::StatusOr<LocalCompletion> completion =
      ReadCompletion(page_.completions[position % kCommandSlots]);
  if (!completion.ok()) return completion.status();
  if (completion->position == position) return absl::optional<LocalCompletion>(*completion);
  if (completion->position == position + kCommandSlots) {
    return absl::OutOfRangeError(absl::StrCat("the record of command ", position,
                                              " has been used again by command ",
                                              completion->position));
  }
  return absl::DataLossError(absl::StrCat("the control page is damaged: command ", position,
                                          " completed as ", completion->position));
}

absl::StatusOr<LocalCompletion> CommandProducer::Wait(uint64_t position, absl::Duration timeout) {
  if (position < submitted_) {
    absl::Status status = WaitForCount(position + 1, timeout);
    if (!status.ok()) return status;
  }
  absl::StatusOr<absl::optional<LocalCompletion>> completion = Poll(position);
  if (!completion.ok()) return completion.status();
  // Counted as completed just now.
  if (!completion->has_value()) return absl::DataLossError("the control page is damaged");
  return **std::move(completion);
}

absl::Status CommandProducer::WaitForRoom(absl::Duration timeout) {
  if (submitted_ < kCommandSlots) return absl::OkStatus();
  return WaitForCount(submitted_ - kCommandSlots + 1, timeout);
}

absl::Status CommandProducer::WaitForCount(uint64_t count, absl::Duration timeout) {
  const absl::Duration start = clock_.Monotonic();
  while (true) {
    // Before the count, as in Poll.
    absl::Status ended = Ended();
    const absl::StatusOr<uint64_t> completed = Completed();
    if (!completed.ok()) return completed.status();
    if (*completed >= count) return absl::OkStatus();
    if (!ended.ok()) return ended;
    const absl::Duration waited = clock_.Monotonic() - start;
    if (waited >= timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("command ", count - 1, " has not ended in ", absl::FormatDuration(timeout)));
    }
    if (waited < options_.spin) {
      SpinPause();
      continue;
    }
    if (options_.check_worker) {
      absl::Status worker = options_.check_worker();
      // What it completed before it went still counts.
      if (!worker.ok()) return LoadCount(page_.worker) >= count ? absl::OkStatus() : worker;
    }
    Sleep(count, std::min(timeout - waited, options_.wait_slice));
  }
}

void CommandProducer::Sleep(uint64_t count, absl::Duration longest) {
  DoorbellSleep sleep(page_.client, page_.worker);
  if (LoadCount(page_.worker) >= count) return;
  if (std::atomic_ref<uint32_t>(page_.worker.ended).load(std::memory_order_seq_cst) != 0) return;
  sleep.Wait(longest);
}

}  // namespace perigee
