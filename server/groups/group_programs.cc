#include "server/groups/group_programs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/groups/fatal_status.h"
#include "server/groups/program_check.h"
#include "server/wire_time.h"

namespace perigee {

void GroupPrograms::Submit(const ProgramSubmitted& event) {
  const absl::Status valid = Check(event);
  if (!valid.ok()) {
    context_.Finish(event.call, valid);
    return;
  }
  Run run;
  run.id = ++last_id_;
  run.call = event.call;
  run.buffer = event.buffer;
  run.program = event.program;
  if (event.path_choice) buffers_.set_path_choice(event.buffer, *event.path_choice);
  programs_.push_back(std::move(run));
  if (programs_.size() == 1) StartNext();
}

absl::Status GroupPrograms::Check(const ProgramSubmitted& event) const {
  absl::Status status = buffers_.CheckUsable(event.buffer, event.generation);
  if (!status.ok()) return status;
  if (programs_.size() > kMaxWaiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxWaiting, " programs wait for ", context_.name, " already"));
  }
  return CheckProgram(event.program, buffers_.Find(event.buffer)->shape(), context_.ranks());
}

void GroupPrograms::Cancel(CallId call) {
  const auto found = std::find_if(programs_.begin(), programs_.end(),
                                  [&](const Run& run) { return run.call == call; });
  if (found == programs_.end()) return;
  if (found == programs_.begin()) {
    CancelRunning();
  } else {
    context_.Finish(call, absl::CancelledError("cancelled before it ran"));
    programs_.erase(found);
  }
}

void GroupPrograms::CancelAll(const std::string& why) {
  if (programs_.empty()) return;
  for (size_t i = 1; i < programs_.size(); ++i) {
    context_.Finish(programs_[i].call, absl::AbortedError(why));
  }
  programs_.resize(1);
  CancelRunning();
}

bool GroupPrograms::Answer(CommandToken token, const v1::CommandResult& result) {
  if (programs_.empty()) return false;
  Run& run = programs_.front();
  const std::vector<int32_t> waiting = run.round.unanswered();
  if (!run.round.Answer(token, result)) return false;
  for (const int32_t rank : waiting) {
    const v1::CommandResult* answer = run.round.result(rank);
    if (answer != nullptr && answer->has_progress()) Record(rank, answer->progress());
  }
  if (context_.end_reason.empty() && fatal_.empty() && EndsGeneration(result.status())) {
    fatal_ = std::string(DescribeFailure(context_.view(), run.round.statuses()).status.message());
  }
  EndIfComplete();
  return true;
}

void GroupPrograms::TakeProgress(const ProgressReported& event) {
  if (programs_.empty() || event.progress.program_id() != programs_.front().id) return;
  for (const Member& member : context_.members) {
    if (member.info.worker() != event.worker || member.lost) continue;
    const Run& run = programs_.front();
    if (run.round.result(member.info.rank()) != nullptr) return;  // its last word is known
    Record(member.info.rank(), event.progress);
    v1::ExecuteProgramResponse message;
    message.set_program_id(run.id);
    message.set_generation(context_.generation.value);
    *message.add_progress() = run.progress.at(member.info.rank());
    context_.effects.push_back(SendProgress{run.call, std::move(message)});
  }
}

void GroupPrograms::TimePassed() {
  if (programs_.empty() || context_.now.monotonic < programs_.front().deadline) return;
  Run& run = programs_.front();
  run.deadline = absl::InfiniteDuration();
  if (context_.end_reason.empty()) {
    fatal_ =
        absl::StrCat("program ", run.id, " did not stop within ",
                     absl::FormatDuration(context_.times.drain_timeout), " of being cancelled");
    return;
  }
  v1::RankStatus silent;
  silent.set_code(static_cast<int32_t>(absl::StatusCode::kUnavailable));
  silent.set_reason("GENERATION_ABORTED");
  silent.set_message(
      absl::StrCat("no report within ", absl::FormatDuration(context_.times.fence_report_timeout)));
  for (const int32_t rank : run.round.unanswered()) run.round.GiveUp(rank, silent);
  EndIfComplete();
}

absl::Duration GroupPrograms::NextDeadline() const {
  return programs_.empty() ? absl::InfiniteDuration() : programs_.front().deadline;
}

void GroupPrograms::Fence() {
  fatal_.clear();
  while (!programs_.empty() && !programs_.back().started) {
    context_.Finish(programs_.back().call, DescribeFailure(context_.view(), {}));
    programs_.pop_back();
  }
  if (programs_.empty()) return;
  programs_.front().deadline = context_.now.monotonic + context_.times.fence_report_timeout;
  for (const Member& member : context_.members) {
    if (member.lost) GiveUp(member.info.rank());
  }
}

void GroupPrograms::GiveUp(int32_t rank) {
  if (programs_.empty()) return;
  // DescribeFailure finds the words for a lost rank.
  programs_.front().round.GiveUp(rank, v1::RankStatus());
  EndIfComplete();
}

absl::Status GroupPrograms::CheckIdle() const {
  if (programs_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("program ", programs_.front().id, " runs on ",
                                                    programs_.front().buffer,
                                                    "; clients attach when none runs or waits"));
}

bool GroupPrograms::uses(const std::string& buffer) const {
  return std::any_of(programs_.begin(), programs_.end(),
                     [&](const Run& run) { return run.buffer == buffer; });
}

void GroupPrograms::StartNext() {
  if (programs_.empty()) return;
  Run& run = programs_.front();
  run.started = true;
  run.round = context_.SendToAll(absl::InfiniteDuration(), [&](int32_t, auto& command) {
    auto& execute = *command.mutable_execute_program();
    execute.set_buffer(run.buffer);
    execute.set_program_id(run.id);
    execute.set_first_sequence(buffers_.last_sequence(run.buffer) + 1);
    *execute.mutable_program() = run.program;
    *execute.mutable_progress_interval() = ToWire(context_.times.progress_interval);
  });
  context_.effects.push_back(SendProgress{run.call, Message(run)});
}

void GroupPrograms::CancelRunning() {
  Run& run = programs_.front();
  if (run.cancelled) return;
  run.cancelled = true;
  for (const int32_t rank : run.round.unanswered()) {
    v1::WorkerCommand command;
    command.mutable_cancel_program()->set_program_id(run.id);
    if (context_.end_reason.empty()) context_.SendTo(rank, std::move(command));
  }
  run.deadline = std::min(run.deadline, context_.now.monotonic + context_.times.drain_timeout);
}

void GroupPrograms::Record(int32_t rank, const v1::ProgramProgress& progress) {
  v1::ProgramProgress& latest = programs_.front().progress[rank];
  latest = progress;
  latest.set_rank(rank);
  latest.set_group(context_.name);
}

void GroupPrograms::EndIfComplete() {
  if (programs_.empty() || !programs_.front().round.complete()) return;
  const Run run = std::move(programs_.front());
  programs_.pop_front();
  End(run);
  // An answer that ends the generation lets nothing more start in it.
  if (context_.end_reason.empty() && fatal_.empty()) StartNext();
}

void GroupPrograms::End(const Run& run) {
  if (context_.end_reason.empty()) {
    uint64_t last = buffers_.last_sequence(run.buffer);
    for (const auto& [rank, progress] : run.progress) {
      last = std::max<uint64_t>(last, progress.last_sequence());
    }
    buffers_.set_last_sequence(run.buffer, last);
  }
  v1::ExecuteProgramResponse message = Message(run);
  const bool is_ok = run.round.all_ok() && context_.end_reason.empty();
  message.set_complete(is_ok);
  context_.effects.push_back(SendProgress{run.call, std::move(message)});
  if (is_ok) {
    context_.FinishWith(run.call, std::monostate());
  } else {
    context_.Finish(run.call, DescribeFailure(context_.view(), run.round.statuses()));
  }
}

v1::ExecuteProgramResponse GroupPrograms::Message(const Run& run) const {
  v1::ExecuteProgramResponse message;
  message.set_program_id(run.id);
  message.set_generation(context_.generation.value);
  for (const auto& [rank, progress] : run.progress) *message.add_progress() = progress;
  return message;
}

}  // namespace perigee
