#include "server/groups/group_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "server/wire_time.h"

namespace perigee {
GroupMachine::GroupMachine(std::string name, GroupKind kind, const GroupTimes& times,
                           RandomSource random)
    : context_(std::move(name), times, std::move(random)),
      buffers_(context_),
      programs_(context_, buffers_),
      attachments_(context_, buffers_),
      tokens_(context_, buffers_),
      kind_(std::move(kind)) {}

GroupEffects GroupMachine::Step(const GroupEvent& event, const Moment& now) {
  context_.now = now;
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  return std::exchange(context_.effects, {});
}

v1::Group GroupMachine::Describe() const {
  v1::Group group;
  group.set_name(context_.name);
  group.set_ranks(context_.ranks());
  group.set_backend(kind_.backend);
  group.set_transport(kind_.transport);
  group.set_state(state_);
  group.set_generation(context_.generation.value);
  for (const Member& member : context_.members) {
    *group.add_members() = member.info;
    if (member.lost) group.add_lost_ranks(member.info.rank());
  }
  group.set_state_reason(state_reason_);
  group.set_version(version_);
  *group.mutable_create_time() = ToWire(create_time_);
  for (v1::ClientAttachment& client : attachments_.List()) {
    *group.add_attachments() = std::move(client);
  }
  return group;
}

absl::optional<v1::Buffer> GroupMachine::DescribeBuffer(const std::string& name) const {
  const v1::Buffer* const found = buffers_.Find(name);
  if (found == nullptr) return absl::nullopt;
  v1::Buffer buffer = *found;
  for (v1::ClientAttachment& client : attachments_.List(name)) {
    *buffer.add_attachments() = std::move(client);
  }
  return buffer;
}

std::vector<v1::Buffer> GroupMachine::DescribeBuffers() const {
  std::vector<v1::Buffer> list;
  for (const v1::Buffer& buffer : buffers_.List()) list.push_back(*DescribeBuffer(buffer.name()));
  return list;
}

absl::Duration GroupMachine::NextDeadline() const {
  absl::Duration next =
      std::min({round_.deadline(), buffers_.NextDeadline(), programs_.NextDeadline(),
                attachments_.NextDeadline(), tokens_.NextDeadline(), drain_deadline_});
  if (state_ == v1::Group::FENCED && retry_at_ > context_.now.monotonic) {
    next = std::min(next, retry_at_);
  }
  return next;
}

std::vector<RankWorker> GroupMachine::ranks_wanted() const {
  std::vector<RankWorker> wanted;
  // While a program still ends, its failure has to name the lost ranks.
  if (state_ != v1::Group::FENCED || closing_ || !programs_.idle()) return wanted;
  for (const Member& member : context_.members) {
    if (member.lost) wanted.push_back({member.info.rank(), member.info.worker()});
  }
  return wanted;
}

void GroupMachine::On(const GroupCreated& event) {
  PERIGEE_CHECK(state_ == v1::Group::STATE_UNSPECIFIED && !event.members.empty());
  create_call_ = event.call;
  create_time_ = context_.now.wall;
  for (const v1::GroupMember& info : event.members) {
    PERIGEE_CHECK(info.rank() == context_.ranks());
    context_.members.push_back({info, false, ""});
  }
  Change(v1::Group::PENDING, "");
  RequestGeneration();
}

void GroupMachine::On(const GenerationTaken& event) {
  if (!std::exchange(taking_generation_, false)) return;
  // Meanwhile a rank was lost, or the group is wanted no more: the number is burnt.
  if (state_ == v1::Group::CLOSED || closing_ || any_lost()) return;
  absl::Status status = event.generation.status();
  if (status.ok() && *event.generation <= context_.generation) {
    status = absl::DataLossError(absl::StrCat("generation ", event.generation->value,
                                              " was handed out after ", context_.generation.value));
  }
  if (status.ok()) {
    OpenSessions(*event.generation, event.tokens);
  } else if (state_ == v1::Group::PENDING) {
    FailCreation({status, {}});
  } else {
    PauseForming();
    Change(state_, absl::StrCat("no generation: ", status.message()));
  }
}

void GroupMachine::On(const BufferIdTaken& event) { buffers_.TakeId(event); }

void GroupMachine::On(const CommandAnswered& event) {
  if (round_.Answer(event.token, event.result)) return tokens_.TakeLastCounts(round_);
  if (buffers_.Answer(event.token, event.result)) return;
  if (programs_.Answer(event.token, event.result)) return;
  if (attachments_.Answer(event.token, event.result)) return;
  tokens_.Answer(event.token, event.result);
}

void GroupMachine::On(const ProgressReported& event) { programs_.TakeProgress(event); }

void GroupMachine::On(const MemberLost& event) {
  const auto found =
      std::find_if(context_.members.begin(), context_.members.end(), [&](const Member& member) {
        return !member.lost && member.info.worker() == event.worker &&
               member.info.incarnation() == event.incarnation;
      });
  if (found == context_.members.end() || state_ == v1::Group::CLOSED) return;
  found->lost = true;
  found->lost_reason = event.reason;
  const std::string loss = DescribeLoss(context_.members, context_.generation);
  if (generation_lives()) {
    Fence(loss);
  } else if (state_ == v1::Group::PENDING) {
    FailCreation(DescribeFailure(context_.view(), {}));
  } else {
    Change(state_, loss);
    round_.GiveUp(found->info.rank(), v1::RankStatus());
    programs_.GiveUp(found->info.rank());
  }
}

void GroupMachine::On(const MembersReplaced& event) {
  for (const v1::GroupMember& info : event.members) {
    PERIGEE_CHECK(info.rank() >= 0 && info.rank() < context_.ranks());
    Member& member = context_.members[info.rank()];
    PERIGEE_CHECK(member.lost && state_ == v1::Group::FENCED);
    member = Member{info, false, ""};
  }
  Change(state_, state_reason_);
}

void GroupMachine::On(const BufferCreated& event) {
  const absl::Status active = CheckActive();
  if (!active.ok()) {
    context_.Finish(event.call, active);
  } else {
    buffers_.Create(event);
  }
}

void GroupMachine::On(const BufferDeleted& event) {
  buffers_.Delete(event, programs_.uses(event.buffer) || attachments_.uses(event.buffer));
}

void GroupMachine::On(const ProgramSubmitted& event) {
  absl::Status status = CheckActive();
  if (status.ok()) status = attachments_.CheckIdle();
  if (!status.ok()) {
    context_.Finish(event.call, status);
  } else {
    programs_.Submit(event);
  }
}

void GroupMachine::On(const ProgramCancelled& event) { programs_.Cancel(event.call); }

void GroupMachine::On(const TicketWanted& event) {
  absl::Status status = CheckActive();
  if (status.ok()) status = programs_.CheckIdle();
  if (!status.ok()) {
    context_.Finish(event.call, status);
  } else {
    attachments_.Issue(event);
  }
}

void GroupMachine::On(const ClientReported& event) { attachments_.TakeReport(event); }

void GroupMachine::On(const SerialsTaken& event) { tokens_.Take(event); }

void GroupMachine::On(const IssueRecorded& event) { tokens_.TakeRecorded(event); }

void GroupMachine::On(const TokensWanted& event) {
  const absl::Status active = CheckActive();
  if (!active.ok()) {
    context_.Finish(event.call, active);
  } else {
    tokens_.Issue(event);
  }
}

void GroupMachine::On(const LedgerWanted& event) { tokens_.Query(event); }

void GroupMachine::On(const TokensReported& event) {
  if (generation_lives()) tokens_.TakeReport(event);
}

void GroupMachine::On(const GroupDrained& event) {
  (event.remove ? remove_calls_ : drain_calls_).push_back(event.call);
  closing_ = true;
  if (event.remove) remove_ = true;
  switch (state_) {
    case v1::Group::PENDING:
      FailCreation({absl::AbortedError("the group was drained while it was forming"), {}});
      Change(v1::Group::DRAINING, "drained while it was forming");
      break;
    case v1::Group::FORMING:
      Change(v1::Group::DRAINING, "drained while it was forming");
      Fence("the group was drained while it was forming");
      break;
    case v1::Group::ACTIVE:
      drain_deadline_ = context_.now.monotonic + context_.times.drain_timeout;
      Change(v1::Group::DRAINING, "");
      break;
    case v1::Group::FENCED:
      Change(v1::Group::DRAINING, state_reason_);
      break;
    default:  // DRAINING: joins; CLOSED: Advance answers
      break;
  }
}

void GroupMachine::On(const GenerationAborted& event) {
  if (generation_lives() && event.generation == context_.generation) {
    Fence(absl::StrCat("generation ", event.generation.value,
                       " was aborted: ", event.reason.empty() ? "no reason given" : event.reason));
    context_.FinishWith(event.call, std::monostate());
    return;
  }
  const std::string other =
      generation_lives() ? absl::StrCat("; generation ", context_.generation.value, " does") : "";
  context_.Finish(event.call, absl::FailedPreconditionError(
                                  absl::StrCat("generation ", event.generation.value, " of ",
                                               context_.name, " does not live any more", other)));
}

void GroupMachine::On(const TimePassed&) {
  if (context_.now.monotonic >= round_.deadline()) {
    const char* awaited = state_ == v1::Group::FORMING ? "open_session"
                          : sessions_closing_          ? "close_session"
                                                       : "abort_generation";
    round_.TimeOut(awaited, context_.times.forming_timeout);
  }
  buffers_.TimePassed();
  programs_.TimePassed();
  attachments_.TimePassed();
  tokens_.TimePassed();
  if (context_.now.monotonic >= drain_deadline_) {
    drain_deadline_ = absl::InfiniteDuration();
    programs_.CancelAll("the group was drained");
    attachments_.EndAll("the group was drained");
  }
}

absl::Status GroupMachine::CheckActive() const {
  if (state_ == v1::Group::ACTIVE) return absl::OkStatus();
  const std::string reason = state_reason_.empty() ? "" : absl::StrCat(": ", state_reason_);
  return absl::FailedPreconditionError(absl::StrCat(
      context_.name, " is ", v1::Group::State_Name(state_), ", expected ACTIVE", reason));
}

bool GroupMachine::any_lost() const {
  return std::any_of(context_.members.begin(), context_.members.end(),
                     [](const Member& member) { return member.lost; });
}

void GroupMachine::Change(v1::Group::State state, const std::string& reason) {
  state_ = state;
  state_reason_ = reason;
  ++version_;
  context_.effects.push_back(GroupChanged{});
}

void GroupMachine::RequestGeneration() {
  taking_generation_ = true;
  context_.effects.push_back(TakeGeneration{});
}

}  // namespace perigee
