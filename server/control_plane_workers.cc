// The part of the control plane that workers talk to.
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/event_log.h"
#include "server/control_plane.h"
#include "server/groups/lost_command.h"
#include "server/wire_time.h"

namespace perigee {

absl::StatusOr<v1::RegisterWorkerResponse> ControlPlane::RegisterWorker(const v1::Worker& worker) {
  std::lock_guard lock(mutex_);
  absl::Status status = CheckServing();
  if (status.ok()) status = StepTopology(perigee::RegisterWorker{worker, clock_.Wall()});
  if (!status.ok()) {
    LogEvent(LogLevel::kWarning, "worker_refused", {{"worker", worker.name()}, {"status", status}});
    return status;
  }
  Link& link = links_[worker.name()];
  if (link.incarnation != worker.incarnation()) {
    link = Link{worker.incarnation(), 0, nullptr, {}, {}};
    LogEvent(LogLevel::kInfo, "worker_registered",
             {{"worker", worker.name()},
              {"incarnation", worker.incarnation()},
              {"backend", worker.backend()},
              {"address", worker.address()},
              {"pid", worker.pid()}});
  }
  RunPosted();
  v1::RegisterWorkerResponse response;
  *response.mutable_heartbeat_interval() = ToWire(options_.lease.heartbeat_interval);
  *response.mutable_lease_duration() = ToWire(options_.lease.lease_duration);
  response.set_term(store_.term());
  return response;
}

absl::StatusOr<StreamId> ControlPlane::OpenLease(const std::string& worker,
                                                 const std::string& incarnation,
                                                 std::shared_ptr<StreamSink> sink) {
  std::lock_guard lock(mutex_);
  absl::Status status = CheckServing();
  const StreamId id = ++last_stream_;
  if (status.ok()) status = StepTopology(OpenStream{worker, incarnation, WorkerStream::kLease, id});
  if (!status.ok()) return status;
  streams_[id] = Stream{worker, std::move(sink)};
  RunPosted();
  return id;
}

absl::StatusOr<StreamId> ControlPlane::OpenCommands(const v1::WorkerHello& hello,
                                                    std::shared_ptr<CommandSink> sink) {
  std::lock_guard lock(mutex_);
  absl::Status status = CheckServing();
  if (!status.ok()) return status;
  if (hello.term() > store_.term()) {
    return absl::FailedPreconditionError(absl::StrCat(hello.worker(), " has seen term ",
                                                      hello.term(), ", this coordinator is at ",
                                                      store_.term()));
  }
  const StreamId id = ++last_stream_;
  status =
      StepTopology(OpenStream{hello.worker(), hello.incarnation(), WorkerStream::kCommands, id});
  if (!status.ok()) return status;
  Link& link = links_.at(hello.worker());
  link.stream = id;
  link.sink = sink;
  FailLostCommands(link);
  for (const v1::WorkerCommand& command : std::exchange(link.unsent, {})) sink->Send(command);
  streams_[id] = Stream{hello.worker(), std::move(sink)};
  RunPosted();
  return id;
}

void ControlPlane::Detach(Link& link) {
  link.unsent = link.sink->TakeUnsent();
  link.stream = 0;
  link.sink = nullptr;
}

void ControlPlane::FailLostCommands(Link& link) {
  auto unsent = link.unsent.begin();  // ascending ids, as in outstanding
  for (auto it = link.outstanding.begin(); it != link.outstanding.end();) {
    if (unsent != link.unsent.end() && unsent->command_id() == it->first) {
      ++unsent;
      ++it;
      continue;
    }
    const Outstanding& lost = it->second;
    Post(lost.group, CommandAnswered{lost.token, LostCommandResult(lost.what)}, lost.instance);
    it = link.outstanding.erase(it);
  }
}

absl::StatusOr<v1::KeepAliveResponse> ControlPlane::TakeHeartbeat(
    StreamId stream, const v1::KeepAliveRequest& heartbeat) {
  std::lock_guard lock(mutex_);
  perigee::TakeHeartbeat event{stream};
  if (heartbeat.has_transport()) event.transport = heartbeat.transport();
  absl::Status status = CheckServing();
  if (status.ok()) status = StepTopology(event);
  if (!status.ok()) return status;
  RunPosted();
  v1::KeepAliveResponse response;
  response.set_heartbeat(heartbeat.heartbeat());
  response.set_term(store_.term());
  return response;
}

void ControlPlane::TakeReport(StreamId stream, const v1::WorkerReport& report) {
  std::lock_guard lock(mutex_);
  const auto from = streams_.find(stream);
  if (stopped_ || from == streams_.end()) return;
  const std::string& worker = from->second.worker;
  if (report.has_progress()) {
    Post(report.progress().group(), ProgressReported{worker, report.progress()});
  } else if (report.has_client()) {
    Post(report.client().group(), ClientReported{worker, report.client()});
  } else if (report.has_tokens()) {
    Post(report.tokens().group(), TokensReported{worker, report.tokens()});
  } else if (report.has_result()) {
    auto& outstanding = links_.at(worker).outstanding;
    const auto found = outstanding.find(report.result().command_id());
    if (found == outstanding.end()) return;  // answered before
    Post(found->second.group, CommandAnswered{found->second.token, report.result()},
         found->second.instance);
    outstanding.erase(found);
  }
  RunPosted();
}

void ControlPlane::CloseStream(StreamId stream, bool orderly) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (stopped_ || found == streams_.end()) return;
  const auto link = links_.find(found->second.worker);
  if (link != links_.end() && link->second.stream == stream) Detach(link->second);
  LogEvent(LogLevel::kInfo, "worker_stream_closed",
           {{"worker", found->second.worker}, {"orderly", orderly}});
  streams_.erase(found);
  const absl::Status closed = StepTopology(perigee::CloseStream{stream, orderly});
  if (closed.ok()) RunPosted();
}

absl::StatusOr<v1::Worker> ControlPlane::GetWorker(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return serving;
  const v1::Worker* worker = registry_.Find(name);
  if (worker == nullptr) return absl::NotFoundError(absl::StrCat("no worker '", name, "'"));
  return *worker;
}

std::vector<v1::Worker> ControlPlane::ListWorkers() const {
  std::lock_guard lock(mutex_);
  return registry_.List();
}

}  // namespace perigee
