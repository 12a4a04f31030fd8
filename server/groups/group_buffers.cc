#include "server/groups/group_buffers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "server/wire_time.h"

namespace perigee {
namespace {

constexpr size_t kTicketBytes = 16;

}  // namespace

void GroupBuffers::Create(const BufferCreated& event) {
  if (records_.count(event.buffer.name()) > 0) {
    context_.Finish(event.call,
                    absl::AlreadyExistsError(absl::StrCat(event.buffer.name(), " exists")));
    return;
  }
  if (records_.size() >= kMaxBuffers) {
    context_.Finish(event.call, absl::ResourceExhaustedError(
                                    absl::StrCat(context_.name, " has ", records_.size(),
                                                 " buffers, expected at most ", kMaxBuffers)));
    return;
  }
  Record record;
  record.info = event.buffer;
  record.info.set_state(v1::Buffer::FORMING);
  record.create_call = event.call;
  records_.emplace(event.buffer.name(), std::move(record));
  context_.effects.push_back(TakeBufferId{event.buffer.name()});
}

void GroupBuffers::TakeId(const BufferIdTaken& event) {
  const auto found = records_.find(event.buffer);
  // Fenced meanwhile: the id is burnt.
  if (found == records_.end() || found->second.step != Step::kTakingId) return;
  if (!event.id.ok()) {
    context_.Finish(found->second.create_call, event.id.status());
    records_.erase(found);
    return;
  }
  found->second.info.set_id(event.id->value);
  Allocate(found->second);
}

void GroupBuffers::Delete(const BufferDeleted& event, bool in_use) {
  const auto found = records_.find(event.buffer);
  if (found == records_.end()) {
    context_.Finish(event.call, absl::NotFoundError(absl::StrCat("no buffer ", event.buffer)));
    return;
  }
  Record& record = found->second;
  if (in_use) {
    context_.Finish(event.call, absl::FailedPreconditionError(
                                    absl::StrCat("a program runs or waits on ", event.buffer,
                                                 ", or local clients are attached to it")));
  } else if (record.info.state() == v1::Buffer::FORMING) {
    context_.Finish(event.call, absl::FailedPreconditionError(absl::StrCat(
                                    event.buffer, " is FORMING, expected ACTIVE or FENCED")));
  } else if (record.step == Step::kDropping) {
    record.delete_calls.push_back(event.call);
  } else if (record.info.state() == v1::Buffer::ACTIVE) {
    record.delete_calls.push_back(event.call);
    Drop(record);
    AdvanceAll();
  } else {
    context_.FinishWith(event.call, std::monostate());
    records_.erase(found);
  }
}

bool GroupBuffers::Answer(CommandToken token, const v1::CommandResult& result) {
  for (auto& [name, record] : records_) {
    if (!record.round.Answer(token, result)) continue;
    AdvanceAll();
    return true;
  }
  return false;
}

void GroupBuffers::TimePassed() {
  for (auto& [name, record] : records_) {
    if (context_.now.monotonic < record.round.deadline()) continue;
    const char* awaited = record.step == Step::kAllocating   ? "allocate_buffer"
                          : record.step == Step::kConnecting ? "connect_buffer"
                                                             : "drop_buffer";
    record.round.TimeOut(awaited, context_.times.forming_timeout);
  }
  AdvanceAll();
}

absl::Duration GroupBuffers::NextDeadline() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [name, record] : records_) next = std::min(next, record.round.deadline());
  return next;
}

void GroupBuffers::StartForming() {
  for (auto& [name, record] : records_) {
    record.info.set_state(v1::Buffer::FORMING);
    record.info.clear_state_reason();
    Allocate(record);
  }
}

bool GroupBuffers::forming() const {
  return std::any_of(records_.begin(), records_.end(), [](const auto& entry) {
    return entry.second.info.state() == v1::Buffer::FORMING;
  });
}

void GroupBuffers::Fence() {
  for (auto it = records_.begin(); it != records_.end();) {
    Record& record = it->second;
    if (record.create_call != 0) {
      // What a rank said before the end is the better explanation.
      context_.Finish(record.create_call,
                      record.failure ? *record.failure : DescribeFailure(context_.view(), {}));
    }
    for (const CallId call : record.delete_calls) context_.FinishWith(call, std::monostate());
    const bool gone = record.create_call != 0 || !record.delete_calls.empty();
    if (!gone) SetFenced(record, v1::Buffer::FENCED, context_.end_reason);
    it = gone ? records_.erase(it) : std::next(it);
  }
}

void GroupBuffers::Close() {
  Fence();
  records_.clear();
}

const v1::Buffer* GroupBuffers::Find(const std::string& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second.info;
}

absl::Status GroupBuffers::CheckUsable(const std::string& name, Generation generation) const {
  const auto found = records_.find(name);
  if (found == records_.end()) return absl::NotFoundError(absl::StrCat("no buffer ", name));
  if (generation.value != 0 && generation != context_.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("generation ", generation.value, " was asked for, generation ",
                     context_.generation.value, " lives in ", context_.name));
  }
  const v1::Buffer& info = found->second.info;
  const bool is_active = info.state() == v1::Buffer::ACTIVE;
  if (is_active && found->second.step == Step::kSettled) return absl::OkStatus();
  const std::string reason =
      info.state_reason().empty() ? "" : absl::StrCat(": ", info.state_reason());
  return absl::FailedPreconditionError(
      absl::StrCat(name, " is ", is_active ? "being deleted" : v1::Buffer::State_Name(info.state()),
                   ", expected ACTIVE", reason));
}

std::vector<v1::Buffer> GroupBuffers::List() const {
  std::vector<v1::Buffer> list;
  for (const auto& [name, record] : records_) list.push_back(record.info);
  return list;
}

uint64_t GroupBuffers::last_sequence(const std::string& name) const {
  return records_.at(name).last_sequence;
}

void GroupBuffers::set_last_sequence(const std::string& name, uint64_t sequence) {
  records_.at(name).last_sequence = sequence;
}

void GroupBuffers::set_path_choice(const std::string& name, const v1::PathChoice& choice) {
  *records_.at(name).info.mutable_path_choice() = choice;
}

void GroupBuffers::Allocate(Record& record) {
  const size_t ranks = context_.members.size();
  record.tickets.assign(ranks, std::vector<std::string>(ranks));
  for (size_t owner = 0; owner < ranks; ++owner) {
    for (size_t presenter = 0; presenter < ranks; ++presenter) {
      if (owner != presenter) record.tickets[owner][presenter] = context_.random(kTicketBytes);
    }
  }
  record.step = Step::kAllocating;
  record.last_sequence = 0;
  record.round =
      context_.SendToAll(context_.times.forming_timeout, [&](int32_t rank, auto& command) {
        auto& allocate = *command.mutable_allocate_buffer();
        *allocate.mutable_buffer() = record.info;
        for (const std::string& ticket : record.tickets[rank]) allocate.add_tickets(ticket);
      });
}

void GroupBuffers::Connect(Record& record) {
  record.info.clear_rank_bytes();
  for (int32_t rank = 0; rank < context_.ranks(); ++rank) {
    record.info.add_rank_bytes(record.round.result(rank)->allocated_bytes());
  }
  const std::string rendezvous = record.round.result(0)->rendezvous();
  record.step = Step::kConnecting;
  record.round =
      context_.SendToAll(context_.times.forming_timeout, [&](int32_t rank, auto& command) {
        auto& connect = *command.mutable_connect_buffer();
        connect.set_buffer(record.info.name());
        for (const auto& owner : record.tickets) connect.add_tickets(owner[rank]);
        *connect.mutable_timeout() = ToWire(context_.times.connect_timeout);
        connect.set_rendezvous(rendezvous);
      });
  record.tickets.clear();
}

void GroupBuffers::Drop(Record& record) {
  record.step = Step::kDropping;
  record.round = context_.SendToAll(context_.times.forming_timeout, [&](int32_t, auto& command) {
    command.mutable_drop_buffer()->set_buffer(record.info.name());
  });
}

bool GroupBuffers::Advance(Record& record) {
  if (record.step == Step::kTakingId || record.step == Step::kSettled) return false;
  if (!record.round.complete()) return false;
  if (record.step == Step::kDropping) return EndDrop(record);
  if (!record.round.all_ok()) {
    record.failure = DescribeFailure(context_.view(), record.round.statuses());
    Drop(record);
    return false;
  }
  if (record.step == Step::kAllocating) {
    Connect(record);
    return false;
  }
  record.step = Step::kSettled;
  record.info.set_state(v1::Buffer::ACTIVE);
  record.info.set_generation(context_.generation.value);
  context_.FinishWith(std::exchange(record.create_call, 0), record.info);
  return false;
}

void GroupBuffers::AdvanceAll() {
  for (auto it = records_.begin(); it != records_.end();) {
    it = Advance(it->second) ? records_.erase(it) : std::next(it);
  }
}

bool GroupBuffers::EndDrop(Record& record) {
  if (record.create_call != 0) {
    context_.Finish(record.create_call, *record.failure);
    return true;
  }
  if (!record.failure && record.round.all_ok()) {
    for (const CallId call : record.delete_calls) context_.FinishWith(call, std::monostate());
    return true;
  }
  // Forming again failed, or a rank would not drop it: it stays, to be seen and to be deleted.
  if (!record.failure) record.failure = DescribeFailure(context_.view(), record.round.statuses());
  for (const CallId call : record.delete_calls) context_.Finish(call, *record.failure);
  record.delete_calls.clear();
  SetFenced(record, v1::Buffer::FAILED, std::string(record.failure->status.message()));
  return false;
}

void GroupBuffers::SetFenced(Record& record, v1::Buffer::State state, const std::string& reason) {
  record.step = Step::kSettled;
  record.round = CommandRound();
  record.failure.reset();
  record.tickets.clear();
  record.info.set_state(state);
  record.info.set_state_reason(reason);
  record.info.set_generation(0);
  record.info.clear_rank_bytes();
}

}  // namespace perigee
