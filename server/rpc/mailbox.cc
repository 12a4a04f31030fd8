#include "server/rpc/mailbox.h"

namespace perigee {

bool ProgressMailbox::Push(const v1::ExecuteProgramResponse& message) {
  if (!merged_) merged_.emplace();
  merged_->set_program_id(message.program_id());
  merged_->set_generation(message.generation());
  merged_->set_complete(message.complete());
  for (const v1::ProgramProgress& progress : message.progress()) {
    progress_[progress.rank()] = progress;
  }
  return true;
}

absl::optional<v1::ExecuteProgramResponse> ProgressMailbox::Pop() {
  if (!merged_) return absl::nullopt;
  absl::optional<v1::ExecuteProgramResponse> message = std::exchange(merged_, absl::nullopt);
  for (auto& [rank, progress] : progress_) *message->add_progress() = std::move(progress);
  progress_.clear();
  return message;
}

void ProgressMailbox::Clear() {
  merged_.reset();
  progress_.clear();
}

}  // namespace perigee
