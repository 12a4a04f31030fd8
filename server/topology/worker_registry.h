// Who is there: workers, their incarnations and their leases, as pure logic. Time and events come
// from outside, effects go back to the caller; nothing here blocks, locks or reads a clock.
//
//   RegisterWorker        -> READY      lease runs; a command stream must open within the lease
//   AssignWorker          -> ASSIGNED   member of a group
//   ReleaseWorker         -> READY
//   lease ends, a stream stays broken longer than the grace, or another incarnation of the same
//   name registers        -> LOST       for good: only another incarnation brings the name back
//
// The lease ends when no heartbeat came for lease_duration. Where nothing at all happened for half
// of it (this process was stopped or starved, and cannot tell whose heartbeats it missed) every
// live lease starts anew.
#ifndef PERIGEE_SERVER_TOPOLOGY_WORKER_REGISTRY_H_
#define PERIGEE_SERVER_TOPOLOGY_WORKER_REGISTRY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/support/defaults.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

struct LeaseTimes {
  absl::Duration heartbeat_interval = kHeartbeatInterval;
  absl::Duration lease_duration = kLeaseDuration;
  absl::Duration reconnect_grace = kReconnectGrace;
};

// The two streams a worker holds: TopologyService.KeepAlive and ReceiveCommands.
enum class WorkerStream { kLease, kCommands };

// Number of a stream, chosen by the caller, never reused.
using StreamId = uint64_t;

// Events. Workers are named by full resource name.
struct RegisterWorker {
  v1::Worker worker;
  absl::Time wall;  // for the record
};
struct OpenStream {
  std::string worker;
  std::string incarnation;
  WorkerStream kind = WorkerStream::kLease;
  StreamId stream = 0;
};
struct CloseStream {
  StreamId stream = 0;
  bool orderly = false;  // ended by the worker, not by the connection
};
struct TakeHeartbeat {
  StreamId stream = 0;
  absl::optional<v1::TransportCounts> transport = absl::nullopt;
};
struct AssignWorker {
  std::string worker;
  std::string group;
  int32_t rank = 0;
};
struct ReleaseWorker {
  std::string worker;
  std::string group;  // whose member it must still be
};
struct ClockMoved {};
using TopologyEvent = std::variant<RegisterWorker, OpenStream, CloseStream, TakeHeartbeat,
                                   AssignWorker, ReleaseWorker, ClockMoved>;

// Effects.
struct WorkerReady {  // may be placed
  std::string worker;
};
struct WorkerLost {
  std::string worker;
  std::string incarnation;
  std::string group;   // empty: none
  std::string reason;  // "its connection broke"
};
struct EndStream {
  StreamId stream = 0;
  absl::Status status;
};
using TopologyEffect = std::variant<WorkerReady, WorkerLost, EndStream>;

// Not thread-safe.
class WorkerRegistry {
 public:
  explicit WorkerRegistry(const LeaseTimes& times) : times_(times) {}

  // An event that is refused changes nothing. RegisterWorker: INVALID_ARGUMENT (what was expected),
  // FAILED_PRECONDITION (another data-path ABI), ABORTED (this incarnation is lost or replaced),
  // RESOURCE_EXHAUSTED (too many names). OpenStream and TakeHeartbeat: NOT_FOUND (register first),
  // ABORTED (another incarnation is registered, or this one is lost).
  absl::StatusOr<std::vector<TopologyEffect>> Step(const TopologyEvent& event, absl::Duration now);

  // Null if the name is not known. Valid until the next Step.
  const v1::Worker* Find(const std::string& worker) const;
  std::vector<v1::Worker> List() const;  // in order of name
  // When a ClockMoved is due; absl::InfiniteDuration() while nobody is live.
  absl::Duration NextDeadline() const;

 private:
  using Effects = std::vector<TopologyEffect>;
  struct Record {
    v1::Worker info;
    absl::Duration last_heartbeat;
    StreamId lease_stream = 0;  // 0: none is open
    StreamId command_stream = 0;
    absl::Duration lease_stream_deadline;  // where the stream is not open
    absl::Duration command_stream_deadline;
    bool left_orderly = false;
    std::deque<std::string> former;  // incarnations that this one replaced, latest first

    bool live() const { return info.state() != v1::Worker::LOST; }
  };
  struct Stream {
    std::string worker;
    WorkerStream kind;
  };

  absl::StatusOr<Effects> On(const RegisterWorker& event, absl::Duration now);
  absl::StatusOr<Effects> On(const OpenStream& event, absl::Duration now);
  absl::StatusOr<Effects> On(const CloseStream& event, absl::Duration now);
  absl::StatusOr<Effects> On(const TakeHeartbeat& event, absl::Duration now);
  absl::StatusOr<Effects> On(const AssignWorker& event, absl::Duration now);
  absl::StatusOr<Effects> On(const ReleaseWorker& event, absl::Duration now);
  absl::StatusOr<Effects> On(const ClockMoved& event, absl::Duration now);

  // Not a failure of a worker but of this process: every live lease gets a full term.
  void RenewAfterStall(absl::Duration now);
  absl::Status CheckCurrent(const std::string& worker, const std::string& incarnation) const;
  absl::Duration Deadline(const Record& record) const;
  std::string ExpiryReason(const Record& record, absl::Duration now) const;
  void Lose(Record& record, const std::string& reason, const absl::Status& stream_status,
            Effects& effects);
  void StartLease(Record& record, absl::Duration now);

  const LeaseTimes times_;
  std::map<std::string, Record> workers_;
  std::map<StreamId, Stream> streams_;  // open ones of live workers
  absl::Duration last_step_ = absl::InfiniteDuration();
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TOPOLOGY_WORKER_REGISTRY_H_
