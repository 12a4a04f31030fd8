#include "client/lib/stream_link.h"

#include <poll.h>

#include <utility>

#include "proto/local/stream_words.h"

namespace perigee {
namespace {

constexpr absl::Duration kLook = absl::Hours(1);

}  // namespace

absl::StatusOr<std::unique_ptr<StreamLink>> StreamLink::Create(int device,
                                                               absl::Span<std::byte> memory,
                                                               CommandPage& page, int connection) {
  auto words = RegisteredMemory::Register(device, memory.data(), memory.size());
  if (!words.ok()) return words.status();
  return std::unique_ptr<StreamLink>(new StreamLink(*std::move(words), page, connection));
}

StreamLink::StreamLink(std::unique_ptr<RegisteredMemory> words, CommandPage& page, int connection)
    : words_(std::move(words)), page_(page) {
  if (connection >= 0) watcher_ = std::thread([this, connection] { Watch(connection); });
}

StreamLink::~StreamLink() { LetGo(); }

// It brings nothing but its end.
void StreamLink::Watch(int connection) const {
  absl::Status status;
  do {
    status = WaitLimit(kLook, &stop_).Wait(connection, POLLIN);
  } while (absl::IsDeadlineExceeded(status));
  if (!absl::IsCancelled(status)) SetDone(page_, kDoneForGood);
}

void StreamLink::LetGo() {
  stop_.Raise();
  if (watcher_.joinable()) watcher_.join();
  SetDone(page_, kDoneForGood);
}

absl::StatusOr<uint64_t> StreamLink::SubmitBehind(
    CUstream_st* stream, CommandProducer& producer,
    absl::Span<const LocalOperation> operations) const {
  // Before the worker sees any of it: where the stream takes no word, nothing is submitted.
  absl::Status status = producer.CheckRoomFor(operations.size());
  const uint64_t first = producer.submitted();
  if (status.ok()) {
    status = words_->WriteOnStream(stream, &ReadyWord(page_, first), ReadyValue(first));
  }
  if (!status.ok()) return status;
  return producer.SubmitProgram(operations, /*awaits_inputs=*/true);
}

absl::StatusOr<uint64_t> StreamLink::ReleaseBehind(CUstream_st* stream, CommandProducer& producer,
                                                   const LocalSlot& slot) {
  // Where the stream takes no word, the slot is not released.
  absl::Status status = producer.CheckRoomFor(1);
  if (status.ok()) {
    status = words_->WriteOnStream(stream, &ReadWord(page_, next_read_word_), slot.identity);
  }
  if (!status.ok()) return status;
  const LocalReleaseSlot release{slot, LocalRing::kDispatchOutput, SlotRead::kByStream,
                                 next_read_word_};
  next_read_word_ = (next_read_word_ + 1) % static_cast<int32_t>(kReadWords);
  return producer.Submit(release);
}

absl::Status StreamLink::CaptureRead(CUstream_st* stream, int32_t index) const {
  return words_->WriteOnStream(stream, &ReplayedWord(page_, index), 1);
}

absl::Status StreamLink::AwaitCommand(CUstream_st* stream, uint64_t command) const {
  return words_->WaitOnStream(stream, &page_.done.count, command + 1);
}

}  // namespace perigee
