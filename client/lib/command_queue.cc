#include "client/lib/command_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "proto/local/command_room.h"

namespace perigee {

absl::StatusOr<uint64_t> CommandQueue::SubmitProgram(absl::Span<const LocalOperation> operations) {
  if (end_) return end_->status;
  const absl::Status status = CheckRoom(operations.size(), submitted_ - completed_, completed_);
  if (!status.ok()) return status;
  const uint64_t first = submitted_;
  for (const LocalOperation& operation : operations) {
    operations_[submitted_++ % kCommandSlots] = operation;
  }
  return first;
}

const LocalOperation* CommandQueue::head() const {
  if (end_ || completed_ == submitted_) return nullptr;
  return &operations_[completed_ % kCommandSlots];
}

void CommandQueue::Complete(LocalCompletion completion) {
  PERIGEE_CHECK(head() != nullptr);
  completion.position = completed_;
  completion.kind = static_cast<uint32_t>(KindOf(*head()));
  completions_[completed_ % kCommandSlots] = std::move(completion);
  ++completed_;
}

void CommandQueue::End(LocalCompletion why) {
  PERIGEE_CHECK(!why.status.ok());
  if (!end_) end_ = std::move(why);
}

absl::StatusOr<absl::optional<LocalCompletion>> CommandQueue::Find(uint64_t position) const {
  if (position >= submitted_) {
    return absl::OutOfRangeError(absl::StrCat("there is no command ", position,
                                              " yet: ", submitted_, " have been submitted"));
  }
  if (completed_ > position + kCommandSlots) {
    return absl::OutOfRangeError(absl::StrCat(
        "how command ", position, " ended is not kept: ", completed_, " have completed"));
  }
  if (position < completed_) {
    return absl::optional<LocalCompletion>(completions_[position % kCommandSlots]);
  }
  if (end_) return end_->status;
  return absl::optional<LocalCompletion>();
}

}  // namespace perigee
