// This process as a local client of one rank: it shares memory with the rank's worker, writes
// tokens straight into it, submits operations without a call, and reads results in place.
//
// Every rank of the buffer has a client of its own, and all of them submit the same collective
// operations in the same order: each takes a sequence, and what one rank leaves out the others wait
// for. Programs (client/lib/client.h) run when all have left.
#ifndef PERIGEE_CLIENT_LIB_LOCAL_CLIENT_H_
#define PERIGEE_CLIENT_LIB_LOCAL_CLIENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/peer_rows.h"
#include "client/lib/rank_client.h"
#include "client/lib/shared_region.h"
#include "client/lib/stream_link.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/client_arena.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/weights_layout.h"
#include "proto/local/attach_message.h"
#include "proto/local/command_producer.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/shared_mapping.h"
#include "proto/local/unix_socket.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"
#include "proto/v1/attachments.pb.h"

namespace perigee {

struct LocalClientOptions {
  absl::Duration timeout = kConnectTimeout;  // of attaching, and of detaching
  // How long a wait looks before it sleeps. Not set: as the worker does
  // (proto/local/spin_budget.h).
  absl::optional<absl::Duration> spin;
  const Clock* clock = &RealClock();  // outlives the client
};

// From one thread at a time. What Submit and Wait return is about the way to the worker; how a
// command ended is in its completion, whose status, reason and place are those of RankStatus
// (proto/v1/error.proto).
class LocalClient final : public RankClient {
 public:
  // Spends the ticket (Client::IssueAttachTicket). FAILED_PRECONDITION: the worker's memory is on a
  // GPU that this process does not see, naming those that it sees; INVALID_ARGUMENT: a ticket that
  // cannot be, or a worker that shares something else than the ticket says; PERMISSION_DENIED: the
  // worker refuses it (it does not say why; its log does), or another user answers in its place;
  // UNAVAILABLE: nobody answers; DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<LocalClient>> Attach(
      const v1::AttachTicket& ticket, const LocalClientOptions& options = {});
  ~LocalClient() override;  // Detach
  LocalClient(const LocalClient&) = delete;
  LocalClient& operator=(const LocalClient&) = delete;

  const Geometry& geometry() const override { return geometry_; }
  int32_t hidden_size() const override { return hidden_size_; }  // H
  RankId rank() const override { return rank_; }
  Generation generation() const override { return generation_; }
  // Of the next collective operation.
  Sequence next_sequence() const { return producer_->next_sequence(); }
  // The number of the next command.
  uint64_t next_command() const { return producer_->submitted(); }

  // The GPU that all memory below is of, but for the page of commands; none: the host.
  const absl::optional<SharedDevice>& device() const { return shared_.device; }

  // Memory shared with the worker; its addresses are the device's where there is one. An operation
  // reads its inputs between Submit and its completion, and writes its outputs then; nobody touches
  // them at other times. After Detach the addresses hold memory of this process, zeroed at first,
  // as long as the client lives; on a GPU the same little memory shows all over them.
  absl::Span<BFloat16> hidden() const;               // [S, H] in
  absl::Span<int32_t> topk_experts() const;          // [S, K] in; -1: masked
  absl::Span<float> route_weights() const;           // [S, K] in
  absl::Span<const BFloat16> output() const;         // [S, H] of the last combine
  absl::Span<const float> gathered_weights() const;  // [S, K] of the last combine that gathered
  absl::Span<BFloat16> rows() const;                 // [NvS, H] in the shard, grouped by expert
  absl::Span<float> row_weights() const;             // [NvS] in the shard
  RankGradients gradients() const;
  RankSlots slots() const;
  // [R], as RankMemory has it.
  std::vector<BFloat16*> peer_rows() const { return shared_.peers.rows(rows().data()); }
  RankSource source() const;
  // By index, as RankMemory has it.
  std::vector<RankOutputSlot> output_slots() const {
    return OutputSlotsAt(geometry_, hidden_size_, output_slots_, rows().data());
  }
  // The plan of the last dispatch that made one.
  const PlanArrays& plan() const { return arena_.plan; }

  RankMemory memory() const override {
    return {hidden(),           topk_experts(), route_weights(), output(),
            gathered_weights(), rows(),         row_weights(),   plan(),
            gradients(),        slots(),        source(),        device() ? device()->index : -1,
            peer_rows(),        kFullAccess,    output_slots()};
  }
  absl::StatusOr<uint64_t> SubmitProgramBehind(
      CUstream_st* stream, absl::Span<const LocalOperation> operations) override;
  absl::Status MakeWait(CUstream_st* stream, uint64_t command) override;
  absl::StatusOr<uint64_t> ReleaseSlotBehind(CUstream_st* stream, const LocalSlot& slot) override;
  absl::Status CaptureSlotRead(CUstream_st* stream, int32_t index) override;

  // As RankClient has it; where it is over, UNAVAILABLE: the worker has gone.
  absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations) override;
  absl::StatusOr<LocalCompletion> Wait(uint64_t command, absl::Duration timeout) override;
  absl::optional<LocalCompletion> End() override { return producer_->End(); }

  // Leaves in good order, and waits for the worker to have let go. No command is under way: leaving
  // in the middle of a collective operation ends the generation; and nothing of this process on the
  // device uses the memory. Idempotent.
  absl::Status Detach() override;

 private:
  struct Shared {
    SharedMapping page;
    SharedRegion arena, rows, gradients, slots, source;  // the last three may be empty
    PeerRows peers;                                      // likewise
    AccessSet source_access;
    absl::optional<SharedDevice> device;
    uint64_t rows_offset = 0;
    uint64_t row_weights_offset = 0;
  };

  LocalClient(const v1::AttachTicket& ticket, const Geometry& geometry, UnixSocket socket,
              Shared shared, CommandPage& page, const LocalClientOptions& options);
  static absl::StatusOr<Shared> Receive(UnixSocket& socket, const Geometry& geometry,
                                        const v1::AttachTicket& ticket, const WaitLimit& limit);
  static absl::Status Map(const AttachReply& reply, const v1::AttachTicket& ticket,
                          std::vector<FileDescriptor> descriptors, Shared& shared);
  absl::Status CheckWorker() const;
  absl::StatusOr<StreamLink*> Link();

  const Geometry geometry_;
  const int32_t hidden_size_;
  const int32_t output_slots_;  // dispatch-output slots
  const RankId rank_;
  const Generation generation_;
  const LocalClientOptions options_;
  absl::optional<UnixSocket> socket_;  // none: detached
  Shared shared_;
  ClientArenaView arena_;
  GradientBlockLayout gradients_;  // of 0 bytes where none are kept
  WeightsShape weights_;
  CommandPage& page_;
  absl::optional<CommandProducer> producer_;
  std::unique_ptr<StreamLink> link_;  // once a stream is used
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_LOCAL_CLIENT_H_
