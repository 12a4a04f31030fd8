// One buffer of a session: its memory, its data path, and what lives in it. Who may touch it when:
//
//   forming  the session, while it allocates and connects
//   open     calls of remote clients, one at a time (Access), or one running program; never both.
//            Or a guest, a local client's attachment: its operations and calls, one at a time
//   closed   nobody; everything is given back
#ifndef PERIGEE_WORKER_SESSION_SESSION_BUFFER_H_
#define PERIGEE_WORKER_SESSION_SESSION_BUFFER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "proto/local/wait_limit.h"
#include "worker/memory/buffer_memory.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/byte_budget.h"
#include "worker/ops/objects.h"
#include "worker/ops/rank_operations.h"
#include "worker/ops/tensor_store.h"
#include "worker/publication/token_ledger.h"
#include "worker/session/buffer_guest.h"
#include "worker/session/weight_ledger.h"

namespace perigee {

struct SessionBufferConfig {
  std::string name;  // tenants/{t}/groups/{g}/buffers/{b}
  BufferId id;
  Generation generation;
  RankId rank;
  BufferShape shape;
  Transport transport = Transport::kNvlink;
  absl::Duration operation_timeout;
  absl::Duration warmup_timeout;  // of the first operation
  int threads = 1;
  // As DataPathOptions has them.
  int32_t sms = 0;
  int32_t local_sms = 0;
  bool programmatic_launch = true;
  bool high_priority_stream = false;
  // Of the session, which outlives the buffer's use.
  TokenLedger* tokens = nullptr;
  TransportCounters* counters = nullptr;
};

// The rows of this rank's shard as a local client maps them; offsets in bytes.
struct ShardPlace {
  int descriptor = -1;  // borrowed, while there is a guest
  size_t size_bytes = 0;
  size_t rows_offset = 0;
  size_t row_weights_offset = 0;
};

// This rank's gradients, or its slots, likewise; size 0 where the buffer has none.
struct PartPlace {
  int descriptor = -1;  // borrowed, while there is a guest
  size_t size_bytes = 0;
};

// Thread-safe.
class SessionBuffer {
 public:
  // Exclusive use of an open buffer by a call; keep it short.
  class Access {
   public:
    TensorStore& tensors() const { return buffer_->tensors_; }
    WeightLedger& weights() const { return buffer_->weights_; }
    const BufferObjects& objects() const { return buffer_->objects_; }
    const BufferMemory& memory() const { return *buffer_->memory_; }
    const DataPath& data_path() const { return *buffer_->data_path_; }
    Backend& backend() const { return buffer_->backend_; }

   private:
    friend class SessionBuffer;
    Access(std::unique_lock<std::mutex> lock, SessionBuffer* buffer)
        : lock_(std::move(lock)), buffer_(buffer) {}
    std::unique_lock<std::mutex> lock_;
    SessionBuffer* buffer_;
  };

  // Blocks while memory is allocated, or until `stop` is raised. Errors: BufferMemory::Allocate.
  // Backend and budget outlive the buffer.
  static absl::StatusOr<std::shared_ptr<SessionBuffer>> Allocate(const SessionBufferConfig& config,
                                                                 Backend& backend,
                                                                 ByteBudget& budget,
                                                                 const Interrupt* stop);

  const SessionBufferConfig& config() const { return config_; }
  const BufferShape& shape() const { return config_.shape; }

  // While it forms, from one thread: the memory to export and to import peers into.
  BufferMemory& forming_memory() { return *memory_; }
  // Every peer has been imported, or with Transport::kNccl the rendezvous is known: opens the data
  // path and the buffer.
  absl::Status Open(const std::string& rendezvous = "");

  // FAILED_PRECONDITION: the buffer still forms, or a program or a guest's operation is running; or
  // what it was closed with.
  absl::StatusOr<Access> Enter();
  // Forgets a load of weights that has not come to its end, also while a program runs.
  void AbandonWeights(const v1::WeightTarget& target);

  // Reserves an open buffer for a program (FAILED_PRECONDITION if there is one), until EndProgram.
  absl::Status BeginProgram(uint64_t program_id);
  ProgramSite site();
  void EndProgram();

  // Reserves an open buffer for a guest until RemoveGuest; no program runs meanwhile.
  // FAILED_PRECONDITION: a program runs, or there is a guest.
  absl::Status AddGuest(std::shared_ptr<BufferGuest> guest);
  void RemoveGuest();
  std::shared_ptr<BufferGuest> guest() const;
  // While there is a guest.
  ShardPlace shard_place() const;
  // [R - 1] the rows of the other ranks' shards, which lie there alike, in order of rank; none but
  // with BufferShape::peer_store. Borrowed, while there is a guest.
  std::vector<int> peer_rows_descriptors() const { return memory_->peer_rows_descriptors(); }
  PartPlace gradients_place() const;
  PartPlace slots_place() const;
  PartPlace source_place() const;
  // Around an operation of the guest, which has site() for itself between them. On failure it runs
  // none: the buffer was aborted.
  absl::Status BeginGuestOperation();
  void EndGuestOperation();

  // Ends all waits on the data path, now and later, with the ranks that were lost (none: not known)
  // and the reason; whoever comes to the buffer gets `aborted`.
  void Abort(const absl::Status& aborted, absl::Span<const int32_t> lost_ranks,
             const std::string& reason);
  void RequestCancel(bool wanted);
  // No program is running and no guest is there. Gives back data path, peers' mappings and own
  // memory, in this order; `reason` is what callers get from now on. Idempotent.
  void Close(const absl::Status& reason);

 private:
  enum class State { kForming, kOpen, kClosed };
  SessionBuffer(const SessionBufferConfig& config, Backend& backend, ByteBudget& budget,
                std::unique_ptr<BufferMemory> memory);
  absl::Status CheckUsable() const;
  // Once for a buffer: prefetch copies such scales byte by byte.
  void LogSlowScales() const;
  absl::Status CheckReservable() const;

  const SessionBufferConfig config_;
  Backend& backend_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, but for the running program, which has objects, tensors, memory and data
  // path for itself.
  State state_ = State::kForming;
  absl::Status closed_reason_;
  absl::Status aborted_;
  uint64_t running_program_ = 0;  // 0: none
  std::shared_ptr<BufferGuest> guest_;
  bool guest_operates_ = false;
  std::unique_ptr<BufferMemory> memory_;
  std::unique_ptr<DataPath> data_path_;
  BufferObjects objects_;
  TensorStore tensors_;
  WeightLedger weights_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_SESSION_BUFFER_H_
