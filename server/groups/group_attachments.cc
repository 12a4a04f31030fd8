#include "server/groups/group_attachments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/groups/fatal_status.h"
#include "server/wire_time.h"

namespace perigee {
namespace {

constexpr size_t kTicketBytes = 16;

}  // namespace

void GroupAttachments::Issue(const TicketWanted& event) {
  if (absl::Status status = Check(event); !status.ok()) {
    context_.Finish(event.call, std::move(status));
    return;
  }
  Period& period = periods_[event.buffer];
  if (period.first_sequence == 0) {
    period.last_sequence = buffers_.last_sequence(event.buffer);
    period.first_sequence = period.last_sequence + 1;
  }
  const uint64_t id = ++last_id_;
  Attachment& attachment = attachments_[id];
  attachment.call = event.call;
  attachment.buffer = event.buffer;
  attachment.rank = event.rank;
  attachment.ticket = context_.random(kTicketBytes);
  attachment.deadline = context_.now.monotonic + context_.times.forming_timeout;
  v1::WorkerCommand command;
  auto& serve = *command.mutable_serve_client();
  serve.set_buffer(event.buffer);
  serve.set_attachment_id(id);
  serve.set_ticket(attachment.ticket);
  *serve.mutable_life() = ToWire(kAttachTicketLife);
  serve.set_first_sequence(period.first_sequence);
  attachment.round = context_.SendToRank(event.rank, std::move(command));
  if (period.leaver) TellOfLeaver(id, attachment, *period.leaver);
}

absl::Status GroupAttachments::Check(const TicketWanted& event) const {
  absl::Status status = buffers_.CheckUsable(event.buffer, event.generation);
  if (!status.ok()) return status;
  if (event.rank < 0 || event.rank >= context_.ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", event.rank, ", expected 0 to ", context_.ranks() - 1));
  }
  for (const auto& [id, attachment] : attachments_) {
    if (attachment.buffer != event.buffer || attachment.rank != event.rank) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(Describe(event.rank),
                     attachment.attached ? " has a client attached to " : " has a ticket out for ",
                     event.buffer));
  }
  const auto period = periods_.find(event.buffer);
  if (period == periods_.end()) return absl::OkStatus();
  if (!period->second.ending.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the attachments of ", event.buffer, " are ending: ", period->second.ending));
  }
  if (period->second.ranks.count(event.rank) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Describe(event.rank), " was attached to ", event.buffer,
                   " and has left; it may come again when the other ranks have left too"));
}

bool GroupAttachments::Answer(CommandToken token, const v1::CommandResult& result) {
  for (auto& [id, attachment] : attachments_) {
    if (!attachment.round.Answer(token, result)) continue;
    Close(id, result);
    return true;
  }
  return false;
}

void GroupAttachments::TakeReport(const ClientReported& event) {
  const auto found = attachments_.find(event.report.attachment_id());
  if (found == attachments_.end()) return;
  Attachment& attachment = found->second;
  const Member& member = context_.members[attachment.rank];
  if (member.lost || member.info.worker() != event.worker) return;
  if (event.report.state() == v1::ClientReport::ADMITTED && attachment.call != 0) {
    context_.FinishWith(std::exchange(attachment.call, 0), MakeTicket(attachment, event.report));
    if (!attachment.ending) attachment.deadline = absl::InfiniteDuration();
  } else if (event.report.state() == v1::ClientReport::ATTACHED) {
    attachment.attached = true;
    attachment.pid = event.report.pid();
    attachment.attach_time = context_.now.wall;
    periods_.at(attachment.buffer).ranks.insert(attachment.rank);
  }
}

v1::AttachTicket GroupAttachments::MakeTicket(const Attachment& attachment,
                                              const v1::ClientReport& report) const {
  const v1::Buffer& buffer = *buffers_.Find(attachment.buffer);
  const v1::GroupMember& member = context_.members[attachment.rank].info;
  v1::AttachTicket ticket;
  ticket.set_buffer(attachment.buffer);
  ticket.set_buffer_id(buffer.id());
  *ticket.mutable_shape() = buffer.shape();
  ticket.set_generation(context_.generation.value);
  ticket.set_rank(attachment.rank);
  ticket.set_ranks(context_.ranks());
  ticket.set_worker(member.worker());
  ticket.set_incarnation(member.incarnation());
  ticket.set_socket_path(report.socket_path());
  ticket.set_worker_uid(report.worker_uid());
  ticket.set_ticket(attachment.ticket);
  *ticket.mutable_life() = ToWire(kAttachTicketLife);
  ticket.set_first_sequence(periods_.at(attachment.buffer).first_sequence);
  return ticket;
}

void GroupAttachments::Close(uint64_t id, const v1::CommandResult& result) {
  const Attachment attachment = std::move(attachments_.at(id));
  attachments_.erase(id);
  const v1::ClientEnd& end = result.client_end();
  Period& period = periods_.at(attachment.buffer);
  period.last_sequence = std::max<uint64_t>(period.last_sequence, end.last_sequence());
  const bool failed = result.status().code() != 0;
  if (failed && EndsGeneration(result.status()) && fatal_.empty()) {
    fatal_ = absl::StrCat(Describe(attachment.rank), ": ", result.status().message());
  }
  if (failed && attachment.call != 0) {
    v1::RankStatus status = result.status();
    status.set_rank(attachment.rank);
    context_.Finish(attachment.call, DescribeFailure(context_.view(), {status}));
  } else if (attachment.call != 0) {
    context_.Finish(attachment.call,
                    absl::AbortedError(absl::StrCat("no ticket was given: ", end.reason())));
  }
  if (end.attached() && !end.orderly()) {
    EndPeriod(attachment.buffer, absl::StrCat("the client of ", Describe(attachment.rank),
                                              " has gone: ", end.reason()));
  } else if (end.attached() && !failed) {
    NoteLeaver(attachment, end.last_sequence());
  }
  const bool any = std::any_of(attachments_.begin(), attachments_.end(), [&](const auto& entry) {
    return entry.second.buffer == attachment.buffer;
  });
  if (any) return;
  buffers_.set_last_sequence(attachment.buffer, period.last_sequence);
  periods_.erase(attachment.buffer);
}

// The other clients of its buffer, those that come later among them, may go on alone, but not wait
// for it.
void GroupAttachments::NoteLeaver(const Attachment& gone, uint64_t last_sequence) {
  absl::optional<Leaver>& leaver = periods_.at(gone.buffer).leaver;
  if (leaver && leaver->last_sequence <= last_sequence) return;
  leaver = Leaver{gone.rank, last_sequence};
  for (const auto& [id, attachment] : attachments_) {
    if (attachment.buffer == gone.buffer && !attachment.ending) {
      TellOfLeaver(id, attachment, *leaver);
    }
  }
}

void GroupAttachments::TellOfLeaver(uint64_t id, const Attachment& attachment,
                                    const Leaver& leaver) {
  v1::WorkerCommand command;
  v1::EndClientCommand& end = *command.mutable_end_client();
  end.set_attachment_id(id);
  end.set_reason(absl::StrCat("the client of ", Describe(leaver.rank), " has left"));
  end.set_beyond_only(true);
  end.set_last_sequence(leaver.last_sequence);
  context_.SendTo(attachment.rank, std::move(command));
}

void GroupAttachments::End(Attachment& attachment, uint64_t id, const std::string& why) {
  if (std::exchange(attachment.ending, true)) return;
  attachment.deadline = context_.now.monotonic + context_.times.drain_timeout;
  v1::WorkerCommand command;
  command.mutable_end_client()->set_attachment_id(id);
  command.mutable_end_client()->set_reason(why);
  context_.SendTo(attachment.rank, std::move(command));
}

void GroupAttachments::EndPeriod(const std::string& buffer, const std::string& why) {
  Period& period = periods_.at(buffer);
  if (period.ending.empty()) period.ending = why;
  for (auto& [id, attachment] : attachments_) {
    if (attachment.buffer == buffer) End(attachment, id, why);
  }
}

void GroupAttachments::EndAll(const std::string& why) {
  for (const auto& [buffer, period] : periods_) EndPeriod(buffer, why);
}

void GroupAttachments::TimePassed() {
  for (auto& [id, attachment] : attachments_) {
    if (context_.now.monotonic < attachment.deadline) continue;
    attachment.deadline = absl::InfiniteDuration();
    fatal_ = absl::StrCat(
        Describe(attachment.rank), " did not ",
        attachment.ending ? "end an attachment within " : "say whether a client may attach within ",
        absl::FormatDuration(attachment.ending ? context_.times.drain_timeout
                                               : context_.times.forming_timeout));
  }
}

absl::Duration GroupAttachments::NextDeadline() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, attachment] : attachments_) next = std::min(next, attachment.deadline);
  return next;
}

void GroupAttachments::Fence() {
  fatal_.clear();
  for (const auto& [id, attachment] : attachments_) {
    context_.Finish(attachment.call, DescribeFailure(context_.view(), {}));
  }
  attachments_.clear();
  periods_.clear();
}

std::vector<v1::ClientAttachment> GroupAttachments::List(const std::string& buffer) const {
  std::vector<v1::ClientAttachment> list;
  for (const auto& [id, attachment] : attachments_) {
    if (!buffer.empty() && attachment.buffer != buffer) continue;
    v1::ClientAttachment& client = list.emplace_back();
    client.set_buffer(attachment.buffer);
    client.set_rank(attachment.rank);
    client.set_state(attachment.ending     ? v1::ClientAttachment::ENDING
                     : attachment.attached ? v1::ClientAttachment::ATTACHED
                                           : v1::ClientAttachment::TICKET);
    if (!attachment.attached) continue;
    client.set_pid(attachment.pid);
    *client.mutable_attach_time() = ToWire(attachment.attach_time);
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return std::pair(a.buffer(), a.rank()) < std::pair(b.buffer(), b.rank());
  });
  return list;
}

absl::Status GroupAttachments::CheckIdle() const {
  if (attachments_.empty()) return absl::OkStatus();
  std::vector<std::string> held;
  for (const auto& [buffer, period] : periods_) {
    std::vector<int32_t> ranks;
    for (const auto& [id, attachment] : attachments_) {
      if (attachment.buffer == buffer) ranks.push_back(attachment.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    held.push_back(absl::StrCat(buffer, " (ranks ", absl::StrJoin(ranks, ", "), ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "local clients are attached to, or have tickets for, ", absl::StrJoin(held, ", "), "; ",
      context_.name, " runs programs again when all of them have ended"));
}

std::string GroupAttachments::Describe(int32_t rank) const {
  return absl::StrCat("rank ", rank, " (", context_.members[rank].info.worker(), ")");
}

}  // namespace perigee
