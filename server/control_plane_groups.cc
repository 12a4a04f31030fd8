// The part of the control plane that clients talk to: groups, buffers, programs, generations.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/common/check.h"
#include "proto/support/resource_name.h"
#include "server/control_plane.h"
#include "server/groups/buffer_shape.h"

namespace perigee {
namespace {

absl::Status NoGroup(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no group ", name));
}

// The group of tenants/{t}/groups/{g}/buffers/{b}.
std::string GroupOf(const std::string& buffer) {
  return buffer.substr(0, buffer.find("/buffers/"));
}

}  // namespace

void ControlPlane::CreateGroup(const NewGroup& request, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  const auto name = ChooseGroupName(request);
  if (!name.ok()) return done({name.status(), {}, {}});
  const auto workers =
      PlaceRanks(request.ranks, request.backend, request.workers, registry_.List());
  if (!workers.ok()) return done({workers.status(), {}, {}});
  const absl::Status linked = CheckLinks(request.transport, *workers, registry_.List());
  if (!linked.ok()) return done({linked, {}, {}});

  Entry& entry = groups_[*name];
  entry.instance = ++last_instance_;
  entry.machine = std::make_unique<GroupMachine>(
      *name, GroupKind{request.backend, request.transport}, options_.group, random_);
  GroupCreated created{AddCall(std::move(done)), {}};
  for (size_t rank = 0; rank < workers->size(); ++rank) {
    created.members.push_back(AssignMember((*workers)[rank], *name, static_cast<int32_t>(rank)));
  }
  Post(*name, std::move(created), entry.instance);
  RunPosted();
}

absl::StatusOr<std::string> ControlPlane::ChooseGroupName(const NewGroup& request) {
  if (groups_.size() >= kMaxGroups) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", groups_.size(), " groups, expected at most ", kMaxGroups));
  }
  if (!request.group_id.empty()) {
    std::string name = GroupName(request.tenant, request.group_id);
    if (groups_.count(name) > 0) {
      return absl::AlreadyExistsError(absl::StrCat("group ", name, " exists"));
    }
    return name;
  }
  std::string name;
  do {
    name = GroupName(request.tenant, absl::StrCat("g", ++groups_named_));
  } while (groups_.count(name) > 0);
  return name;
}

void ControlPlane::DrainGroup(const std::string& name, bool remove, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  if (groups_.count(name) == 0) return done({NoGroup(name), {}, {}});
  Post(name, GroupDrained{AddCall(std::move(done)), remove});
  RunPosted();
}

absl::StatusOr<v1::Group> ControlPlane::GetGroup(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(name);
  if (found == groups_.end()) return NoGroup(name);
  return found->second.machine->Describe();
}

std::vector<v1::Group> ControlPlane::ListGroups(const std::string& tenant) const {
  std::lock_guard lock(mutex_);
  std::vector<v1::Group> list;
  for (const auto& [name, entry] : groups_) {
    if (absl::StartsWith(name, absl::StrCat(tenant, "/groups/"))) {
      list.push_back(entry.machine->Describe());
    }
  }
  return list;
}

absl::StatusOr<WatchId> ControlPlane::WatchGroup(const std::string& name,
                                                 std::shared_ptr<GroupSink> sink) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return serving;
  const auto found = groups_.find(name);
  if (found == groups_.end()) return NoGroup(name);
  const v1::Group group = found->second.machine->Describe();
  sink->Update(group);
  if (group.state() == v1::Group::CLOSED) {
    sink->End(absl::OkStatus());
    return WatchId{0};
  }
  watches_[++last_watch_] = name;
  found->second.watchers[last_watch_] = std::move(sink);
  return last_watch_;
}

void ControlPlane::Unwatch(WatchId watch) {
  std::lock_guard lock(mutex_);
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  groups_.at(found->second).watchers.erase(watch);
  watches_.erase(found);
}

void ControlPlane::CreateBuffer(const NewBuffer& request, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  const auto found = groups_.find(request.group);
  if (found == groups_.end()) return done({NoGroup(request.group), {}, {}});
  Entry& entry = found->second;
  const auto shape = CompleteShape(request.shape, entry.machine->Describe().ranks());
  if (!shape.ok()) return done({shape.status(), {}, {}});
  const absl::Status timeouts =
      CheckTimeouts(request.operation_timeout_ms, request.warmup_timeout_ms);
  if (!timeouts.ok()) return done({timeouts, {}, {}});
  const absl::Status sms = CheckSms(request.sms, request.local_sms);
  if (!sms.ok()) return done({sms, {}, {}});

  std::string name = BufferName(request.group, request.buffer_id);
  while (request.buffer_id.empty()) {
    name = BufferName(request.group, absl::StrCat("b", ++entry.buffers_named));
    if (entry.machine->buffers().Find(name) == nullptr) break;
  }
  BufferCreated created{AddCall(std::move(done)), {}};
  created.buffer.set_name(name);
  *created.buffer.mutable_shape() = *shape;
  created.buffer.set_operation_timeout_ms(request.operation_timeout_ms);
  created.buffer.set_warmup_timeout_ms(request.warmup_timeout_ms);
  created.buffer.set_sms(request.sms);
  created.buffer.set_local_sms(request.local_sms);
  created.buffer.set_no_programmatic_launch(request.no_programmatic_launch);
  created.buffer.set_high_priority_stream(request.high_priority_stream);
  Post(request.group, std::move(created));
  RunPosted();
}

void ControlPlane::DeleteBuffer(const std::string& name, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  const std::string group = GroupOf(name);
  if (groups_.count(group) == 0) return done({NoGroup(group), {}, {}});
  Post(group, BufferDeleted{AddCall(std::move(done)), name});
  RunPosted();
}

absl::StatusOr<v1::Buffer> ControlPlane::GetBuffer(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(GroupOf(name));
  absl::optional<v1::Buffer> buffer;
  if (found != groups_.end()) buffer = found->second.machine->DescribeBuffer(name);
  if (!buffer) return absl::NotFoundError(absl::StrCat("no buffer ", name));
  return *std::move(buffer);
}

absl::StatusOr<std::vector<v1::Buffer>> ControlPlane::ListBuffers(const std::string& group) const {
  std::lock_guard lock(mutex_);
  absl::string_view prefix = group;
  const bool of_all = absl::ConsumeSuffix(&prefix, "/groups/-");
  if (!of_all && groups_.count(group) == 0) return NoGroup(group);
  std::vector<v1::Buffer> list;
  for (const auto& [name, entry] : groups_) {
    if (!(of_all ? absl::StartsWith(name, absl::StrCat(prefix, "/")) : name == group)) continue;
    for (v1::Buffer& buffer : entry.machine->DescribeBuffers()) list.push_back(std::move(buffer));
  }
  return list;
}

void ControlPlane::IssueAttachTicket(const v1::IssueAttachTicketRequest& request, CallDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done({serving, {}, {}});
  const std::string group = GroupOf(request.buffer());
  if (groups_.count(group) == 0) return done({NoGroup(group), {}, {}});
  Post(group, TicketWanted{AddCall(std::move(done)), request.buffer(),
                           Generation(request.generation()), request.rank()});
  RunPosted();
}

CallId ControlPlane::ExecuteProgram(const v1::ExecuteProgramRequest& request,
                                    std::shared_ptr<ProgramSink> sink) {
  std::lock_guard lock(mutex_);
  const std::string group = GroupOf(request.buffer());
  absl::Status status = CheckServing();
  if (status.ok() && groups_.count(group) == 0) status = NoGroup(group);
  if (!status.ok()) {
    sink->Finish({status, {}, {}});
    return 0;
  }
  const CallId call = AddCall(std::move(sink));
  ProgramSubmitted submitted{call, request.buffer(), Generation(request.generation()),
                             request.program()};
  if (request.has_path_choice()) submitted.path_choice = request.path_choice();
  Post(group, std::move(submitted));
  RunPosted();
  return calls_.count(call) > 0 ? call : 0;
}

void ControlPlane::CancelProgram(CallId call) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  // A group knows its own calls; the others let it pass.
  for (const auto& [name, entry] : groups_) Post(name, ProgramCancelled{call}, entry.instance);
  RunPosted();
}

void ControlPlane::AbortGeneration(const std::string& group, Generation generation,
                                   const std::string& reason, GenerationDone done) {
  std::lock_guard lock(mutex_);
  const absl::Status serving = CheckServing();
  if (!serving.ok()) return done(serving);
  if (groups_.count(group) == 0) return done(NoGroup(group));
  const CallId call = AddCall([this, group, generation, done](const CallResult& result) {
    if (!result.status.ok()) return done(result.status);
    // It has just ended, and the newest are kept.
    const v1::GenerationInfo* info = history_.Find(group, generation);
    PERIGEE_CHECK(info != nullptr);
    done(*info);
  });
  Post(group, GenerationAborted{call, generation, reason});
  RunPosted();
}

absl::StatusOr<v1::GenerationInfo> ControlPlane::GetGeneration(const std::string& group,
                                                               Generation generation) const {
  std::lock_guard lock(mutex_);
  const v1::GenerationInfo* info = history_.Find(group, generation);
  if (info == nullptr) {
    return absl::NotFoundError(absl::StrCat("no generation ", GenerationName(group, generation)));
  }
  return *info;
}

absl::StatusOr<std::vector<v1::GenerationInfo>> ControlPlane::ListGenerations(
    const std::string& group) const {
  std::lock_guard lock(mutex_);
  if (groups_.count(group) == 0) return NoGroup(group);
  return history_.List(group);
}

}  // namespace perigee
