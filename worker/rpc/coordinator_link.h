// A worker's connection to its coordinator: registration, the lease on a channel of its own, and
// the stream of commands and reports.
//
// What is broken is opened again, with a jittered backoff; the worker's sessions do not notice: it
// never fences itself because the coordinator is silent. It leaves for good when the coordinator
// says that a newer incarnation has its name (ABORTED) or that it may not register any more, and
// when it finds that it slept longer than its lease (stopped by a signal, or starved): the group
// has gone on without it then, and only a new process, with a new incarnation, may come back.
#ifndef PERIGEE_WORKER_RPC_COORDINATOR_LINK_H_
#define PERIGEE_WORKER_RPC_COORDINATOR_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/local/wait_limit.h"
#include "proto/support/clock.h"
#include "proto/v1/topology.grpc.pb.h"
#include "worker/rpc/backoff.h"
#include "worker/rpc/bidi_stream.h"

namespace perigee {

struct CoordinatorLinkOptions {
  std::string coordinator;  // host:port
  v1::Worker worker;        // as it registers
  // One attempt to register; well below a lease, so that it is never taken for a sleep.
  absl::Duration register_attempt = absl::Seconds(1);
  const Clock* clock = nullptr;
  // All from threads of the link, or of gRPC; none may call Stop.
  std::function<void(const v1::WorkerCommand&)> on_command;  // in order; must return at once
  std::function<void(uint64_t)> on_term;
  std::function<uint64_t()> term;  // highest seen
  std::function<uint64_t()> operations_done;
  // Of the session that lives, if one does; never waits. May be empty.
  std::function<absl::optional<v1::TransportCounts>()> transport;
  std::function<void(bool)> on_serving;               // whether the lease is acknowledged
  std::function<void(const absl::Status&)> on_leave;  // once, last
};

// Thread-safe.
class CoordinatorLink {
 public:
  explicit CoordinatorLink(CoordinatorLinkOptions options);
  ~CoordinatorLink();  // Stop

  // Registers, then keeps the link up from a thread of its own. Blocks. UNAVAILABLE naming the
  // coordinator: nobody answered there within the limit; CANCELLED: interrupted;
  // FAILED_PRECONDITION, INVALID_ARGUMENT: it refuses this worker.
  absl::Status Start(const WaitLimit& limit);

  // Queues a report; it waits for the stream when that is broken. Never blocks.
  void Send(const v1::WorkerReport& report);

  // Ends the streams, and a registration that is under way. Idempotent.
  void Stop();

 private:
  using LeaseStream = BidiStream<v1::KeepAliveRequest, v1::KeepAliveResponse>;
  using CommandStream = BidiStream<v1::WorkerReport, v1::WorkerCommand>;
  template <typename Stream>
  struct Reopening {
    std::unique_ptr<Stream> stream;  // null while it is broken
    absl::Duration opened_at;
    absl::Duration retry_at;  // on the clock, while it is broken
    Backoff backoff;
  };

  // One attempt; CANCELLED when it was interrupted.
  absl::Status Register(const WaitLimit& limit);
  absl::Status CallRegister(const WaitLimit& limit, v1::RegisterWorkerResponse& response);
  void Run();
  // One look at everything; false when the link has ended.
  bool Tick();
  bool CheckAwake();
  template <typename Stream>
  bool Reap(Reopening<Stream>& reopening, const char* what);
  bool RegisterAgain();
  void OpenLease();
  void OpenCommands();
  void SendHeartbeat();
  void UpdateServing();
  bool Leave(const absl::Status& status);
  void OnLeaseReply(const v1::KeepAliveResponse& reply);
  absl::Duration NextWake() const;
  void Wake();

  const CoordinatorLinkOptions options_;
  const Clock& clock_;
  std::unique_ptr<v1::TopologyService::Stub> stub_;        // registration and commands
  std::unique_ptr<v1::TopologyService::Stub> lease_stub_;  // its channel shares no connection

  // Of the link's thread.
  absl::Duration heartbeat_interval_;
  absl::Duration lease_duration_;
  absl::Duration last_tick_;
  absl::Duration next_heartbeat_;
  uint64_t heartbeat_ = 0;  // of the present lease stream
  bool must_register_ = false;
  bool serving_ = false;
  Backoff register_backoff_;
  absl::Duration register_at_;

  Interrupt stop_;  // ends a registration that the thread waits for
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                // guarded by mutex_
  bool woken_ = false;                   // guarded by mutex_
  absl::Duration last_reply_;            // guarded by mutex_; of the lease
  std::deque<v1::WorkerReport> outbox_;  // guarded by mutex_; while there is no stream
  // The streams are the thread's; `commands_` is also read by Send, under mutex_.
  Reopening<LeaseStream> lease_;
  Reopening<CommandStream> commands_;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_COORDINATOR_LINK_H_
