#include "server/topology/worker_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/topology/registration.h"
#include "server/wire_time.h"

namespace perigee {
namespace {

constexpr size_t kMaxWorkers = 10000;
// A process that was stopped may wake up long after its name was taken over. Older ones than these
// cannot be told from new ones; their streams are refused all the same.
constexpr size_t kFormerIncarnations = 64;

absl::Status Replaced(const std::string& worker, const std::string& incarnation) {
  return absl::AbortedError(
      absl::StrCat("incarnation ", incarnation, " of ", worker, " was replaced by a newer one"));
}

// The first digits tell the processes of one name apart.
std::string Shorten(const std::string& incarnation) { return incarnation.substr(0, 8); }

std::string Restarted(const std::string& before, const std::string& after) {
  return absl::StrCat("it restarted: incarnation ", Shorten(after), " registered in place of ",
                      Shorten(before));
}

absl::Status Lost(const v1::Worker& worker) {
  return absl::AbortedError(absl::StrCat("incarnation ", worker.incarnation(), " of ",
                                         worker.name(), " was lost: ", worker.lost_reason(),
                                         "; a new process must register"));
}

}  // namespace

absl::StatusOr<std::vector<TopologyEffect>> WorkerRegistry::Step(const TopologyEvent& event,
                                                                 absl::Duration now) {
  if (now - last_step_ > times_.lease_duration / 2) RenewAfterStall(now);
  last_step_ = now;
  return std::visit([&](const auto& e) { return On(e, now); }, event);
}

const v1::Worker* WorkerRegistry::Find(const std::string& worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second.info;
}

std::vector<v1::Worker> WorkerRegistry::List() const {
  std::vector<v1::Worker> list;
  for (const auto& [name, record] : workers_) list.push_back(record.info);
  return list;
}

absl::Duration WorkerRegistry::NextDeadline() const {
  absl::Duration next = absl::InfiniteDuration();
  bool any = false;
  for (const auto& [name, record] : workers_) {
    if (!record.live()) continue;
    any = true;
    next = std::min(next, Deadline(record));
  }
  // Often enough that a gap in the steps can only be a stall.
  return any ? std::min(next, last_step_ + times_.lease_duration / 4) : next;
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const RegisterWorker& event,
                                                           absl::Duration now) {
  const absl::Status valid = CheckRegistration(event.worker);
  if (!valid.ok()) return valid;
  const std::string& name = event.worker.name();
  const std::string& incarnation = event.worker.incarnation();
  Effects effects;
  auto found = workers_.find(name);
  if (found == workers_.end()) {
    if (workers_.size() >= kMaxWorkers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("at most ", kMaxWorkers, " workers are kept"));
    }
    found = workers_.emplace(name, Record{}).first;
  } else {
    Record& record = found->second;
    if (record.info.incarnation() == incarnation) {
      if (!record.live()) return Lost(record.info);
      return effects;  // the answer to an earlier call was lost
    }
    if (std::count(record.former.begin(), record.former.end(), incarnation) > 0) {
      return Replaced(name, incarnation);
    }
    if (record.live()) {
      Lose(record, Restarted(record.info.incarnation(), incarnation),
           Replaced(name, record.info.incarnation()), effects);
    }
    record.former.push_front(record.info.incarnation());
    if (record.former.size() > kFormerIncarnations) record.former.pop_back();
  }
  Record& record = found->second;
  record.info = event.worker;
  record.info.set_state(v1::Worker::READY);
  record.info.clear_group();
  record.info.clear_rank();
  record.info.clear_transport();
  record.info.clear_lost_reason();
  *record.info.mutable_register_time() = ToWire(event.wall);
  StartLease(record, now);
  effects.push_back(WorkerReady{name});
  return effects;
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const OpenStream& event,
                                                           absl::Duration now) {
  const absl::Status current = CheckCurrent(event.worker, event.incarnation);
  if (!current.ok()) return current;
  Record& record = workers_.at(event.worker);
  const bool is_lease = event.kind == WorkerStream::kLease;
  StreamId& open = is_lease ? record.lease_stream : record.command_stream;
  Effects effects;
  if (open != 0) {
    streams_.erase(open);
    effects.push_back(EndStream{open, absl::CancelledError("the worker opened a newer stream")});
  }
  open = event.stream;
  streams_[event.stream] = Stream{event.worker, event.kind};
  if (is_lease) record.last_heartbeat = now;
  return effects;
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const CloseStream& event,
                                                           absl::Duration now) {
  const auto found = streams_.find(event.stream);
  if (found == streams_.end()) return Effects{};  // a newer one took its place, or it was ended
  Record& record = workers_.at(found->second.worker);
  const absl::Duration deadline = now + times_.reconnect_grace;
  if (found->second.kind == WorkerStream::kLease) {
    record.lease_stream = 0;
    record.lease_stream_deadline = deadline;
  } else {
    record.command_stream = 0;
    record.command_stream_deadline = deadline;
  }
  record.left_orderly = event.orderly;
  streams_.erase(found);
  return Effects{};
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const TakeHeartbeat& event,
                                                           absl::Duration now) {
  const auto found = streams_.find(event.stream);
  if (found == streams_.end()) return absl::AbortedError("the stream has ended");
  Record& record = workers_.at(found->second.worker);
  record.last_heartbeat = now;
  // The session of a group that has let go of the worker may still be there.
  if (event.transport && event.transport->group() == record.info.group()) {
    *record.info.mutable_transport() = *event.transport;
  } else {
    record.info.clear_transport();
  }
  return Effects{};
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const AssignWorker& event,
                                                           absl::Duration) {
  const auto found = workers_.find(event.worker);
  if (found == workers_.end() || found->second.info.state() != v1::Worker::READY) {
    return absl::FailedPreconditionError(absl::StrCat(event.worker, " is not READY"));
  }
  v1::Worker& info = found->second.info;
  info.set_state(v1::Worker::ASSIGNED);
  info.set_group(event.group);
  info.set_rank(event.rank);
  return Effects{};
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const ReleaseWorker& event,
                                                           absl::Duration) {
  const auto found = workers_.find(event.worker);
  if (found == workers_.end() || found->second.info.group() != event.group) return Effects{};
  v1::Worker& info = found->second.info;
  info.clear_group();
  info.clear_rank();
  info.clear_transport();
  if (info.state() == v1::Worker::LOST) return Effects{};
  info.set_state(v1::Worker::READY);
  return Effects{WorkerReady{event.worker}};
}

absl::StatusOr<WorkerRegistry::Effects> WorkerRegistry::On(const ClockMoved&, absl::Duration now) {
  Effects effects;
  for (auto& [name, record] : workers_) {
    if (!record.live() || now < Deadline(record)) continue;
    const std::string reason = ExpiryReason(record, now);
    Lose(record, reason, absl::OkStatus(), effects);
  }
  return effects;
}

void WorkerRegistry::RenewAfterStall(absl::Duration now) {
  for (auto& [name, record] : workers_) {
    if (record.live()) StartLease(record, now);
  }
}

void WorkerRegistry::StartLease(Record& record, absl::Duration now) {
  record.last_heartbeat = now;
  record.lease_stream_deadline = now + times_.lease_duration;
  record.command_stream_deadline = now + times_.lease_duration;
  record.left_orderly = false;
}

absl::Status WorkerRegistry::CheckCurrent(const std::string& worker,
                                          const std::string& incarnation) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) {
    return absl::NotFoundError(
        absl::StrCat("worker '", worker, "' is not registered; register it first"));
  }
  const v1::Worker& info = found->second.info;
  if (info.incarnation() != incarnation) return Replaced(worker, incarnation);
  if (!found->second.live()) return Lost(info);
  return absl::OkStatus();
}

absl::Duration WorkerRegistry::Deadline(const Record& record) const {
  absl::Duration deadline = record.last_heartbeat + times_.lease_duration;
  if (record.lease_stream == 0) deadline = std::min(deadline, record.lease_stream_deadline);
  if (record.command_stream == 0) deadline = std::min(deadline, record.command_stream_deadline);
  return deadline;
}

std::string WorkerRegistry::ExpiryReason(const Record& record, absl::Duration now) const {
  if (now >= record.last_heartbeat + times_.lease_duration) {
    return absl::StrCat("no heartbeat for ", absl::FormatDuration(times_.lease_duration));
  }
  return record.left_orderly ? "it left" : "its connection broke";
}

void WorkerRegistry::Lose(Record& record, const std::string& reason,
                          const absl::Status& stream_status, Effects& effects) {
  record.info.set_state(v1::Worker::LOST);
  record.info.set_lost_reason(reason);
  const absl::Status status = stream_status.ok() ? Lost(record.info) : stream_status;
  for (StreamId* stream : {&record.lease_stream, &record.command_stream}) {
    if (*stream == 0) continue;
    streams_.erase(*stream);
    effects.push_back(EndStream{*stream, status});
    *stream = 0;
  }
  effects.push_back(
      WorkerLost{record.info.name(), record.info.incarnation(), record.info.group(), reason});
}

}  // namespace perigee
