// The transitions of a group: forming, fencing, closing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/groups/group_machine.h"

namespace perigee {
namespace {

// Before forming is tried again, doubled with each failure in a row.
constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

}  // namespace

void GroupMachine::Advance() {
  const std::string& fatal = programs_.fatal().empty() ? attachments_.fatal() : programs_.fatal();
  if (generation_lives() && !fatal.empty()) {
    Fence(absl::StrCat("generation ", context_.generation.value, " was fenced: ", fatal));
  }
  if (state_ == v1::Group::FORMING) AdvanceForming();
  const bool idle = programs_.idle() && attachments_.idle();
  if (state_ == v1::Group::DRAINING && generation_lives() && idle) CloseSessions();
  if (!generation_lives()) AdvanceEnded();
}

void GroupMachine::AdvanceForming() {
  if (!round_.complete()) return;
  if (!round_.all_ok()) {
    FailForming(DescribeFailure(context_.view(), round_.statuses()));
    return;
  }
  if (!std::exchange(buffers_began_, true)) buffers_.StartForming();
  if (buffers_.forming()) return;
  pause_ = absl::ZeroDuration();
  context_.effects.push_back(GenerationActivated{context_.generation});
  Change(v1::Group::ACTIVE, "");
  context_.FinishWith(std::exchange(create_call_, 0), Describe());
}

void GroupMachine::AdvanceEnded() {
  if (!round_.complete() || !programs_.idle()) return;
  tokens_.CloseLedger();
  if (closing_) {
    Close();
    return;
  }
  const bool may_form = state_ == v1::Group::FENCED && !taking_generation_ && !any_lost();
  if (may_form && context_.now.monotonic >= retry_at_) RequestGeneration();
}

void GroupMachine::OpenSessions(Generation generation, const std::vector<FirstTokens>& tokens) {
  context_.generation = generation;
  context_.end_reason.clear();
  generation_began_ = true;
  buffers_began_ = false;
  GenerationBegan began{generation, {}};
  for (const Member& member : context_.members) began.workers.push_back(member.info.worker());
  context_.effects.push_back(std::move(began));
  tokens_.Open(tokens);
  Change(v1::Group::FORMING, "");
  round_ = context_.SendToAll(context_.times.forming_timeout, [&](int32_t rank, auto& command) {
    auto& open = *command.mutable_open_session();
    open.set_rank(rank);
    open.set_transport(kind_.transport);
    for (const Member& member : context_.members) *open.add_members() = member.info;
    tokens_.FillFirst(rank, open);
  });
}

void GroupMachine::Fence(const std::string& reason) {
  context_.end_reason = reason;
  if (create_call_ != 0 && !create_failure_) FailCreation(DescribeFailure(context_.view(), {}));
  context_.effects.push_back(GenerationEnded{context_.generation, reason});
  Change(state_ == v1::Group::DRAINING ? v1::Group::DRAINING : v1::Group::FENCED, reason);
  round_ = context_.SendToAll(context_.times.forming_timeout, [&](int32_t, auto& command) {
    auto& abort = *command.mutable_abort_generation();
    for (const Member& member : context_.members) {
      if (member.lost) abort.add_lost_ranks(member.info.rank());
    }
    abort.set_reason(reason);
  });
  buffers_.Fence();
  programs_.Fence();
  attachments_.Fence();
  tokens_.Fence();
}

void GroupMachine::FailCreation(const GroupFailure& failure) {
  create_failure_ = failure;
  closing_ = true;
  remove_ = true;
}

void GroupMachine::FailForming(const GroupFailure& failure) {
  if (create_call_ != 0) {
    FailCreation(failure);
  } else {
    PauseForming();
  }
  Fence(absl::StrCat("generation ", context_.generation.value,
                     " could not form: ", failure.status.message()));
}

void GroupMachine::PauseForming() {
  pause_ = pause_ == absl::ZeroDuration() ? kFirstPause : std::min(2 * pause_, kLongestPause);
  retry_at_ = context_.now.monotonic + pause_;
}

void GroupMachine::CloseSessions() {
  context_.end_reason = "the group was drained";
  context_.effects.push_back(GenerationEnded{context_.generation, context_.end_reason});
  drain_deadline_ = absl::InfiniteDuration();
  sessions_closing_ = true;
  buffers_.Close();
  tokens_.End();
  round_ = context_.SendToAll(context_.times.forming_timeout,
                              [](int32_t, auto& command) { command.mutable_close_session(); });
}

void GroupMachine::Close() {
  if (state_ != v1::Group::CLOSED) {
    if (sessions_closing_) AbortWhereOpen();
    buffers_.Close();
    WorkersReleased released;
    for (const Member& member : context_.members) released.workers.push_back(member.info.worker());
    const std::string reason = context_.end_reason.empty() ? state_reason_ : context_.end_reason;
    Change(v1::Group::CLOSED, reason);
    context_.effects.push_back(std::move(released));
  }
  if (create_failure_) {
    const CallId call = std::exchange(create_call_, 0);
    if (create_failure_->error.group().empty()) {
      context_.Finish(call, create_failure_->status);
    } else {
      context_.Finish(call, *create_failure_);
    }
  }
  for (const CallId call : std::exchange(drain_calls_, {})) context_.FinishWith(call, Describe());
  for (const CallId call : std::exchange(remove_calls_, {})) {
    context_.FinishWith(call, std::monostate());
  }
  if (std::exchange(remove_, false)) context_.effects.push_back(GroupRemoved{});
}

void GroupMachine::AbortWhereOpen() {
  for (const v1::RankStatus& status : round_.statuses()) {
    if (status.code() == 0) continue;
    v1::WorkerCommand command;
    command.mutable_abort_generation()->set_reason("the group is closed");
    context_.SendTo(status.rank(), std::move(command));
  }
}

}  // namespace perigee
