// The coordinator's state behind one mutex: the worker registry, the groups and the history of
// generations. Takes events from RPCs, the clock and the store, runs the pure steps, carries out
// their effects. Knows no gRPC.
//
// Nothing here waits: calls that take time get their answer through a CallDone or a sink, the
// store's disk is waited for on a thread of its own, and sinks never block (server/sinks.h).
#ifndef PERIGEE_SERVER_CONTROL_PLANE_H_
#define PERIGEE_SERVER_CONTROL_PLANE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/v1/publication.pb.h"
#include "proto/v1/topology.pb.h"
#include "server/alarm.h"
#include "server/groups/group_machine.h"
#include "server/publication/generation_history.h"
#include "server/publication/token_keys.h"
#include "server/sinks.h"
#include "server/store/store.h"
#include "server/topology/worker_registry.h"
#include "server/work_queue.h"

namespace perigee {

struct ControlPlaneOptions {
  LeaseTimes lease;
  GroupTimes group;
  // kMasterKeyBytes; empty: drawn at random, for a control plane whose stored answers nobody needs.
  std::string master_key;
};

struct NewGroup {
  std::string tenant;                // tenants/{t}
  std::string group_id;              // empty: chosen here
  int32_t ranks = 0;                 // 1 or more
  std::string backend;               // host or cuda
  std::vector<std::string> workers;  // by rank; empty: chosen here
  std::string transport = "nvlink";  // or nccl
};

struct NewBuffer {
  std::string group;
  std::string buffer_id;  // empty: chosen here
  v1::BufferShape shape;
  int64_t operation_timeout_ms = 0;
  int64_t warmup_timeout_ms = 0;
  int32_t sms = 0;
  int32_t local_sms = 0;
  bool no_programmatic_launch = false;
  bool high_priority_stream = false;
};

using GenerationDone = std::function<void(const absl::StatusOr<v1::GenerationInfo>&)>;
// Names a watcher; 0 names none.
using WatchId = uint64_t;

// Thread-safe. Names are full resource names of the right form. Every `done` and sink is called
// exactly once with an end, from any thread, with the mutex held; `done` perhaps before the call
// that took it returns. After Shutdown everything is UNAVAILABLE.
class ControlPlane {
 public:
  static constexpr size_t kMaxGroups = 1000;

  // `store` and `clock` outlive it.
  ControlPlane(const ControlPlaneOptions& options, Store& store, const Clock& clock,
               RandomSource random);
  ~ControlPlane();  // Shutdown
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // ---- Workers. Errors as in topology.proto.
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const v1::Worker& worker);
  // The worker's own word on who it is. Where it is refused the sink is not kept.
  absl::StatusOr<StreamId> OpenLease(const std::string& worker, const std::string& incarnation,
                                     std::shared_ptr<StreamSink> sink);
  // Commands that no earlier stream has taken are sent now, in order, before any new one. Those
  // that one had taken and the worker has not answered are never sent again, because it may have
  // carried them out: they fail with COMMAND_LOST.
  absl::StatusOr<StreamId> OpenCommands(const v1::WorkerHello& hello,
                                        std::shared_ptr<CommandSink> sink);
  absl::StatusOr<v1::KeepAliveResponse> TakeHeartbeat(StreamId stream,
                                                      const v1::KeepAliveRequest& heartbeat);
  void TakeReport(StreamId stream, const v1::WorkerReport& report);
  // The stream has gone; its sink is let go. `orderly`: ended by the worker.
  void CloseStream(StreamId stream, bool orderly);
  absl::StatusOr<v1::Worker> GetWorker(const std::string& name) const;
  std::vector<v1::Worker> ListWorkers() const;  // in order of name

  // ---- Groups and what they hold. Errors as in groups.proto, buffers.proto, publication.proto.
  void CreateGroup(const NewGroup& request, CallDone done);
  void DrainGroup(const std::string& name, bool remove, CallDone done);
  absl::StatusOr<v1::Group> GetGroup(const std::string& name) const;
  std::vector<v1::Group> ListGroups(const std::string& tenant) const;  // in order of name
  // The sink hears the group now and after every change.
  absl::StatusOr<WatchId> WatchGroup(const std::string& name, std::shared_ptr<GroupSink> sink);
  void Unwatch(WatchId watch);

  void CreateBuffer(const NewBuffer& request, CallDone done);
  void DeleteBuffer(const std::string& name, CallDone done);
  absl::StatusOr<v1::Buffer> GetBuffer(const std::string& name) const;
  // Of one group, NOT_FOUND; or of all of a tenant, where `group` ends in "/groups/-".
  absl::StatusOr<std::vector<v1::Buffer>> ListBuffers(const std::string& group) const;

  // Errors as in attachments.proto.
  void IssueAttachTicket(const v1::IssueAttachTicketRequest& request, CallDone done);

  // The number to cancel it by; 0 where it has ended already.
  CallId ExecuteProgram(const v1::ExecuteProgramRequest& request,
                        std::shared_ptr<ProgramSink> sink);
  void CancelProgram(CallId call);

  void AbortGeneration(const std::string& group, Generation generation, const std::string& reason,
                       GenerationDone done);
  absl::StatusOr<v1::GenerationInfo> GetGeneration(const std::string& group,
                                                   Generation generation) const;
  absl::StatusOr<std::vector<v1::GenerationInfo>> ListGenerations(const std::string& group) const;
  // An empty request_id is a request of its own.
  void IssueTokens(const v1::IssueTokensRequest& request, CallDone done);
  void GetTokenLedger(const std::string& group, Generation generation, CallDone done);

  // Looks at the clock now. Only for a clock that a test moves.
  void Poke() { alarm_.Poke(); }
  // Ends every stream and call with UNAVAILABLE. Idempotent.
  void Shutdown();

 private:
  struct Entry {
    uint64_t instance = 0;  // tells a group from an earlier one of its name
    std::unique_ptr<GroupMachine> machine;
    std::map<WatchId, std::shared_ptr<GroupSink>> watchers;
    uint64_t buffers_named = 0;  // ids chosen here
  };
  // A command without an answer: whose it is.
  struct Outstanding {
    std::string group;
    uint64_t instance = 0;
    CommandToken token = 0;
    std::string what;  // "execute_program"
  };
  // The way to one incarnation.
  struct Link {
    std::string incarnation;
    StreamId stream = 0;  // 0: not open
    std::shared_ptr<CommandSink> sink;
    std::map<uint64_t, Outstanding> outstanding;  // by command_id
    std::vector<v1::WorkerCommand> unsent;        // of them, while no stream is open; in order
  };
  struct Stream {
    std::string worker;
    std::shared_ptr<StreamSink> sink;
  };
  struct ForGroup {
    std::string group;
    uint64_t instance = 0;  // 0: whichever has the name
    GroupEvent event;
  };
  using Call = std::variant<CallDone, std::shared_ptr<ProgramSink>>;

  Moment Now() const { return {clock_.Monotonic(), clock_.Wall()}; }
  absl::Status CheckServing() const;

  // Each runs with the mutex held.
  void Tick();
  absl::Status StepTopology(const TopologyEvent& event);
  void Post(const std::string& group, GroupEvent event, uint64_t instance = 0);
  // Runs posted events and their consequences until none is left, then sets the alarm.
  void RunPosted();
  void SeekReplacements();
  CallId AddCall(Call call);
  void FinishNow(CallId call, const CallResult& result);
  absl::StatusOr<std::string> ChooseGroupName(const NewGroup& request);
  v1::GroupMember AssignMember(const std::string& worker, const std::string& group, int32_t rank);

  // The stream of the link is no more; what it was not given waits for the next one.
  void Detach(Link& link);
  // Fails what an earlier stream of the link had taken.
  void FailLostCommands(Link& link);

  void Do(const WorkerReady& effect);
  void Do(const WorkerLost& effect);
  void Do(const EndStream& effect);

  void Do(const std::string& group, const SendCommand& effect);
  void Do(const std::string& group, const TakeGeneration& effect);
  void Do(const std::string& group, const TakeBufferId& effect);
  void Do(const std::string& group, const FinishCall& effect);
  void Do(const std::string& group, const SendProgress& effect);
  void Do(const std::string& group, const GroupChanged& effect);
  void Do(const std::string& group, const GenerationBegan& effect);
  void Do(const std::string& group, const GenerationActivated& effect);
  void Do(const std::string& group, const GenerationEnded& effect);
  void Do(const std::string& group, const WorkersReleased& effect);
  void Do(const std::string& group, const GroupRemoved& effect);
  void Do(const std::string& group, const TakeSerials& effect);
  void Do(const std::string& group, const RecordIssue& effect);
  void Do(const std::string& group, const LedgerClosed& effect);

  // On the disk's thread.
  void TakeGenerationNow(const std::string& group, uint64_t instance, int32_t ranks);
  void IssueTokensNow(const TokensWanted& wanted);

  const ControlPlaneOptions options_;
  Store& store_;
  const Clock& clock_;
  const RandomSource random_;
  const TokenKeys keys_;

  mutable std::mutex mutex_;  // of everything below, the two threads excepted
  bool stopped_ = false;
  WorkerRegistry registry_;
  GenerationHistory history_;
  std::map<std::string, Link> links_;  // by worker: its current incarnation
  std::map<StreamId, Stream> streams_;
  std::map<std::string, Entry> groups_;
  std::map<CallId, Call> calls_;
  std::map<WatchId, std::string> watches_;  // their groups
  std::deque<ForGroup> posted_;
  bool workers_came_ = false;  // somebody became READY, or a group began to wait
  uint64_t last_stream_ = 0;
  uint64_t last_command_ = 0;
  uint64_t last_call_ = 0;
  uint64_t last_watch_ = 0;
  uint64_t last_instance_ = 0;
  uint64_t groups_named_ = 0;  // ids chosen here

  WorkQueue disk_;  // what waits for the store
  Alarm alarm_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_CONTROL_PLANE_H_
