// One generation of a group on this rank: its buffers, and the one thread that runs its programs.
#ifndef PERIGEE_WORKER_SESSION_SESSION_H_
#define PERIGEE_WORKER_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "proto/local/wait_limit.h"
#include "proto/support/clock.h"
#include "proto/v1/command.pb.h"
#include "worker/memory/descriptor_server.h"
#include "worker/ops/byte_budget.h"
#include "worker/ops/group_view.h"
#include "worker/ops/program_runner.h"
#include "worker/ops/transport_counters.h"
#include "worker/publication/token_ledger.h"
#include "worker/session/serial_thread.h"
#include "worker/session/session_buffer.h"

namespace perigee {

// What every session of a worker shares. All of it outlives the sessions.
struct SessionEnvironment {
  std::string worker;        // workers/{w}, this one
  uint64_t incarnation = 0;  // its own
  Backend& backend;
  DescriptorServer& descriptors;
  const Clock& clock;
  ByteBudget& tensor_budget;
  std::atomic<uint64_t>& operations_done;
  int threads = 1;
};

// Thread-safe. Allocate, Connect, Drop, Execute and Close: from one thread at a time (the worker's
// command thread). Abort and Cancel: from any, at once.
class Session {
 public:
  using ProgressSink = std::function<void(const v1::ProgramProgress&)>;
  using OutcomeSink = std::function<void(const ProgramOutcome&)>;

  // INVALID_ARGUMENT, saying what is wrong with ranks, members, transport or tokens;
  // FAILED_PRECONDITION: this rank is another worker's, or another incarnation's. on_low_tokens:
  // TokenLedger's on_low.
  static absl::StatusOr<std::shared_ptr<Session>> Open(
      const std::string& group, Generation generation, const v1::OpenSessionCommand& command,
      const SessionEnvironment& environment, std::function<void()> on_low_tokens = nullptr);
  ~Session();

  const GroupView& view() const { return view_; }
  // This rank's publication tokens in this generation.
  TokenLedger& tokens() { return *tokens_; }
  // What it has sent, and what has failed on it. Never waits.
  v1::TransportCounts transport_counts() const { return counters_->Snapshot(); }

  // Takes this rank's part of a buffer and offers it to the peers; the bytes taken. Blocks while
  // memory is allocated; after an Abort only until the part of it that is under way is there.
  absl::StatusOr<uint64_t> AllocateBuffer(const v1::AllocateBufferCommand& command);
  // By what the ranks of a buffer find each other; empty where that is not this rank's to say.
  absl::StatusOr<std::string> NewRendezvous();
  // Fetches the peers' parts, unless the transport does without, and opens the data path. Blocks,
  // within the command's timeout; the message names the rank that did not answer, or whose memory
  // this one cannot map.
  absl::Status ConnectBuffer(const v1::ConnectBufferCommand& command);
  // FAILED_PRECONDITION while a program runs on it or it has a guest. A buffer that is not here is
  // fine.
  absl::Status DropBuffer(const std::string& name);

  // Starts a program; both sinks are called from the program thread, the second exactly once, when
  // the next program may be started. On failure neither is.
  absl::Status Execute(const v1::ExecuteProgramCommand& command, ProgressSink on_progress,
                       OutcomeSink on_outcome);
  // Asks the program to stop, if it is the one that runs, or as soon as it starts: a cancel may
  // overtake the command that starts it.
  void Cancel(uint64_t program_id);

  // Ends every wait of this generation, here. Whatever is asked of it from now on is UNAVAILABLE,
  // GENERATION_ABORTED, naming the lost ranks. Only the first call has an effect.
  void Abort(absl::Span<const int32_t> lost_ranks, const std::string& reason);
  // Waits until the program thread is idle and the guests of buffers have left (milliseconds after
  // an Abort), then gives everything back. FAILED_PRECONDITION while a program runs, or a guest is
  // there, and no Abort was called. Idempotent.
  absl::Status Close();

  // NOT_FOUND names the buffers that are here; UNAVAILABLE after Abort.
  absl::StatusOr<std::shared_ptr<SessionBuffer>> FindBuffer(const std::string& name) const;

 private:
  struct Member {
    uint64_t incarnation = 0;
    std::string socket_path;
  };
  struct RunningProgram {
    uint64_t id = 0;  // 0: none
    std::shared_ptr<SessionBuffer> buffer;
  };

  Session(GroupView view, Transport transport, std::vector<Member> members,
          const SessionEnvironment& environment, std::unique_ptr<TokenLedger> tokens);
  absl::StatusOr<SessionBufferConfig> ParseBuffer(const v1::Buffer& buffer) const;
  absl::Status ImportPeers(SessionBuffer& buffer, const std::vector<Ticket>& tickets,
                           absl::Duration timeout);
  void RunProgram(const ProgramOrder& order, const std::shared_ptr<SessionBuffer>& buffer,
                  const ProgressSink& on_progress, const OutcomeSink& on_outcome);
  absl::Status CheckIdle() const;  // mutex_ is held

  const GroupView view_;
  const Transport transport_;
  const std::vector<Member> members_;
  const SessionEnvironment environment_;
  const std::unique_ptr<TokenLedger> tokens_;
  const std::unique_ptr<TransportCounters> counters_;
  Interrupt interrupt_;  // ends allocations, and fetches from peers

  mutable std::mutex mutex_;
  absl::Status aborted_;                                           // guarded by mutex_
  std::map<std::string, std::shared_ptr<SessionBuffer>> buffers_;  // guarded by mutex_
  RunningProgram running_;                                         // guarded by mutex_
  uint64_t cancelled_program_ = 0;                                 // guarded by mutex_
  SerialThread program_thread_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_SESSION_H_
