#include "server/control_plane.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "proto/support/event_log.h"
#include "server/groups/lost_command.h"

namespace perigee {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the coordinator is shutting down"); }

}  // namespace

ControlPlane::ControlPlane(const ControlPlaneOptions& options, Store& store, const Clock& clock,
                           RandomSource random)
    : options_(options),
      store_(store),
      clock_(clock),
      random_(std::move(random)),
      keys_(options.master_key.empty() ? random_(kMasterKeyBytes) : options.master_key),
      registry_(options.lease),
      alarm_(clock, [this] { Tick(); }) {}

ControlPlane::~ControlPlane() { Shutdown(); }

void ControlPlane::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      stopped_ = true;
      for (auto& [id, stream] : streams_) stream.sink->End(ShuttingDown());
      for (auto& [name, entry] : groups_) {
        for (auto& [id, sink] : entry.watchers) sink->End(ShuttingDown());
        entry.watchers.clear();
      }
      while (!calls_.empty()) FinishNow(calls_.begin()->first, {ShuttingDown(), {}, {}});
      streams_.clear();
      links_.clear();
      watches_.clear();
      posted_.clear();
    }
  }
  // Both may be waiting for the mutex.
  alarm_.Stop();
  disk_.Stop();
}

absl::Status ControlPlane::CheckServing() const {
  return stopped_ ? ShuttingDown() : absl::OkStatus();
}

void ControlPlane::Tick() {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  const absl::Status stepped = StepTopology(ClockMoved{});
  PERIGEE_CHECK(stepped.ok());
  const absl::Duration now = clock_.Monotonic();
  for (const auto& [name, entry] : groups_) {
    if (now >= entry.machine->NextDeadline()) Post(name, TimePassed{}, entry.instance);
  }
  RunPosted();
}

absl::Status ControlPlane::StepTopology(const TopologyEvent& event) {
  auto effects = registry_.Step(event, clock_.Monotonic());
  if (!effects.ok()) return effects.status();
  for (const TopologyEffect& effect : *effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  return absl::OkStatus();
}

void ControlPlane::Post(const std::string& group, GroupEvent event, uint64_t instance) {
  posted_.push_back({group, instance, std::move(event)});
}

void ControlPlane::RunPosted() {
  while (!posted_.empty() || workers_came_) {
    if (posted_.empty()) {
      workers_came_ = false;
      SeekReplacements();
      continue;
    }
    const ForGroup next = std::move(posted_.front());
    posted_.pop_front();
    const auto found = groups_.find(next.group);
    if (found == groups_.end()) continue;
    if (next.instance != 0 && next.instance != found->second.instance) continue;
    const GroupEffects effects = found->second.machine->Step(next.event, Now());
    if (!found->second.machine->ranks_wanted().empty()) workers_came_ = true;
    for (const GroupEffect& effect : effects) {
      std::visit([&](const auto& e) { Do(next.group, e); }, effect);
    }
  }
  absl::Duration deadline = registry_.NextDeadline();
  for (const auto& [name, entry] : groups_) {
    deadline = std::min(deadline, entry.machine->NextDeadline());
  }
  alarm_.SetAtLatest(deadline);
}

void ControlPlane::SeekReplacements() {
  for (auto& [name, entry] : groups_) {
    const std::vector<RankWorker> wanted = entry.machine->ranks_wanted();
    if (wanted.empty()) continue;
    const v1::Group group = entry.machine->Describe();
    Survivors survivors{.transport = group.transport()};
    for (const v1::GroupMember& member : group.members()) {
      const bool is_lost = std::any_of(wanted.begin(), wanted.end(), [&](const RankWorker& rank) {
        return rank.rank == member.rank();
      });
      if (is_lost) continue;
      survivors.host = registry_.Find(member.worker())->host();
      survivors.workers.push_back(member.worker());
    }
    const auto placed = PlaceReplacements(wanted, group.backend(), survivors, registry_.List());
    if (!placed) continue;
    for (const RankWorker& rank : wanted) {
      const absl::Status released = StepTopology(ReleaseWorker{rank.worker, name});
      PERIGEE_CHECK(released.ok());
    }
    MembersReplaced replaced;
    for (const RankWorker& rank : *placed) {
      replaced.members.push_back(AssignMember(rank.worker, name, rank.rank));
    }
    Post(name, std::move(replaced), entry.instance);
  }
}

CallId ControlPlane::AddCall(Call call) {
  calls_.emplace(++last_call_, std::move(call));
  return last_call_;
}

void ControlPlane::FinishNow(CallId call, const CallResult& result) {
  const auto found = calls_.find(call);
  PERIGEE_CHECK(found != calls_.end());
  const Call ended = std::move(found->second);
  calls_.erase(found);
  if (const auto* done = std::get_if<CallDone>(&ended)) {
    (*done)(result);
  } else {
    std::get<std::shared_ptr<ProgramSink>>(ended)->Finish(result);
  }
}

v1::GroupMember ControlPlane::AssignMember(const std::string& worker, const std::string& group,
                                           int32_t rank) {
  const absl::Status assigned = StepTopology(AssignWorker{worker, group, rank});
  PERIGEE_CHECK(assigned.ok());
  const v1::Worker& info = *registry_.Find(worker);
  v1::GroupMember member;
  member.set_rank(rank);
  member.set_worker(worker);
  member.set_incarnation(info.incarnation());
  member.set_address(info.address());
  member.set_socket_path(info.socket_path());
  return member;
}

// ---- What follows from a step of the registry.

void ControlPlane::Do(const WorkerReady&) { workers_came_ = true; }

void ControlPlane::Do(const WorkerLost& effect) {
  LogEvent(LogLevel::kWarning, "worker_lost",
           {{"worker", effect.worker},
            {"incarnation", effect.incarnation},
            {"group", effect.group},
            {"reason", effect.reason}});
  const auto link = links_.find(effect.worker);
  if (link != links_.end() && link->second.incarnation == effect.incarnation) links_.erase(link);
  if (!effect.group.empty()) {
    Post(effect.group, MemberLost{effect.worker, effect.incarnation, effect.reason});
  }
}

void ControlPlane::Do(const EndStream& effect) {
  const auto stream = streams_.find(effect.stream);
  if (stream == streams_.end()) return;
  const auto link = links_.find(stream->second.worker);
  if (link != links_.end() && link->second.stream == effect.stream) Detach(link->second);
  stream->second.sink->End(effect.status);
  streams_.erase(stream);
}

// ---- What follows from a step of a group.

void ControlPlane::Do(const std::string& group, const SendCommand& effect) {
  const auto found = links_.find(effect.worker);
  // Its loss is on its way to the group.
  if (found == links_.end() || found->second.incarnation != effect.incarnation) return;
  Link& link = found->second;
  v1::WorkerCommand command = effect.command;
  command.set_command_id(++last_command_);
  command.set_term(store_.term());
  link.outstanding[last_command_] =
      Outstanding{group, groups_.at(group).instance, effect.token, CommandName(command)};
  if (link.sink) {
    link.sink->Send(command);
  } else {
    link.unsent.push_back(std::move(command));
  }
}

void ControlPlane::Do(const std::string& group, const TakeBufferId& effect) {
  disk_.Post([this, group, instance = groups_.at(group).instance, buffer = effect.buffer] {
    const absl::StatusOr<uint64_t> number = store_.TakeBufferId();
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    using Taken = absl::StatusOr<BufferId>;
    Post(group,
         BufferIdTaken{buffer, number.ok() ? Taken(BufferId(*number)) : Taken(number.status())},
         instance);
    RunPosted();
  });
}

void ControlPlane::Do(const std::string& group, const FinishCall& effect) {
  if (!effect.result.status.ok()) {
    LogEvent(LogLevel::kInfo, "call_failed",
             {{"group", group}, {"call", effect.call}, {"status", effect.result.status}});
  }
  FinishNow(effect.call, effect.result);
}

void ControlPlane::Do(const std::string&, const SendProgress& effect) {
  std::get<std::shared_ptr<ProgramSink>>(calls_.at(effect.call))->Progress(effect.message);
}

void ControlPlane::Do(const std::string& group, const GroupChanged&) {
  Entry& entry = groups_.at(group);
  const v1::Group now = entry.machine->Describe();
  LogEvent(LogLevel::kInfo, "group_changed",
           {{"group", group},
            {"state", v1::Group::State_Name(now.state())},
            {"generation", Generation(now.generation())},
            {"reason", now.state_reason()}});
  for (auto& [id, sink] : entry.watchers) {
    sink->Update(now);
    if (now.state() == v1::Group::CLOSED) {
      sink->End(absl::OkStatus());
      watches_.erase(id);
    }
  }
  if (now.state() == v1::Group::CLOSED) entry.watchers.clear();
}

void ControlPlane::Do(const std::string& group, const GenerationBegan& effect) {
  history_.Begin(group, effect.generation, effect.workers, clock_.Wall());
}

void ControlPlane::Do(const std::string& group, const GenerationActivated& effect) {
  history_.Activate(group, effect.generation, clock_.Wall());
}

void ControlPlane::Do(const std::string& group, const GenerationEnded& effect) {
  history_.End(group, effect.generation, effect.reason, clock_.Wall());
}

void ControlPlane::Do(const std::string& group, const WorkersReleased& effect) {
  for (const std::string& worker : effect.workers) {
    const absl::Status released = StepTopology(ReleaseWorker{worker, group});
    PERIGEE_CHECK(released.ok());
  }
}

void ControlPlane::Do(const std::string& group, const GroupRemoved&) {
  groups_.erase(group);
  history_.Forget(group);
}

}  // namespace perigee
