// One rank of a buffer as a framework uses it, whatever the way there: code that is written against
// this runs unchanged
//
//   LocalClient           in a process on the worker's machine (client/lib/local_client.h)
//   OpenRemoteRanks       in one process anywhere, for all ranks (client/lib/remote_ranks.h)
//   EmbeddedWorker        in the process that is the worker (worker/embedded/embedded_worker.h)
//
// Tokens and results have places in memory that the client gives; an operation is submitted without
// waiting, and a wait ends with how it went. Every rank has its client, and all of them submit the
// same collective operations, with the same choice of route weights, in the same order: each takes
// a sequence, and what one rank leaves out the others wait for. run_experts is not collective; what
// a remote rank asks of it is in remote_ranks.h.
#ifndef PERIGEE_CLIENT_LIB_RANK_CLIENT_H_
#define PERIGEE_CLIENT_LIB_RANK_CLIENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/client_arena.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/plan_arrays.h"
#include "kernels/layout/weights_layout.h"
#include "kernels/mapping_access.h"
#include "proto/local/completion_record.h"
#include "proto/local/local_command.h"

struct CUstream_st;  // what cudaStream_t points to

namespace perigee {

// Where a rank's gradients are, in float32: those of the experts in its slots, whatever the layer,
// and of its own experts. Null where the buffer keeps none, and of a remote rank.
struct RankGradients {
  GradientBlockLayout layout;
  std::byte* block = nullptr;

  float* slots(size_t GradientsLayout::*matrix) const {  // [B, ..]
    return At(layout.slots.*matrix);
  }
  float* home(int32_t layer, size_t GradientsLayout::*matrix) const {  // [E/R, ..]
    return At(layout.home_offset(layer) + layout.home.*matrix);
  }

 private:
  float* At(size_t offset) const {
    return block == nullptr ? nullptr : reinterpret_cast<float*>(block + offset);
  }
};

// Where the weights in a rank's slots are, of the layer and version that were prefetched last; a
// process reads them. Null where the buffer has none, and of a remote rank.
struct RankSlots {
  WeightsShape shape;
  WeightsLayout layout;
  const std::byte* block = nullptr;

  // [B, rows, columns] in the buffer's format, or of scales (kernels/layout/weights_layout.h); null
  // where there is no such part.
  const std::byte* part(int part) const {
    const bool there = block != nullptr && shape.part_bytes(part) > 0;
    return there ? block + layout.part(part) : nullptr;
  }
};

// The rank's source shard, where the buffer has source storage (docs/source.md): its tokens' rows
// and route weights, as every rank may fetch them. Its caller writes there what prepare_source is
// not asked to copy. Empty where there is none, and of a remote rank.
struct RankSource {
  absl::Span<BFloat16> hidden;      // [S, H]
  absl::Span<float> route_weights;  // [S, K]
  AccessSet access;                 // what is legal on both
};

// A dispatch-output slot of the rank (docs/rings.md): what the dispatch that has taken it delivers,
// until it is released.
struct RankOutputSlot {
  absl::Span<BFloat16> rows;      // [NvS, H]
  absl::Span<float> row_weights;  // [NvS]
};

// Where a rank's tensors are. An operation reads what it reads, and writes what it writes, between
// its submission and its completion; nobody touches that meanwhile.
struct RankMemory {
  // Read by dispatch.
  absl::Span<BFloat16> hidden;       // [S, H]
  absl::Span<int32_t> topk_experts;  // [S, K]; -1: masked
  absl::Span<float> route_weights;   // [S, K]
  // Written by combine; the second where route weights are gathered.
  absl::Span<const BFloat16> output;         // [S, H]
  absl::Span<const float> gathered_weights;  // [S, K]
  // The rank's shard, grouped by expert: rows that dispatch delivers and combine sums, for experts
  // of the framework's own. Empty where the shard is out of reach: of a remote rank.
  absl::Span<BFloat16> rows;      // [NvS, H]
  absl::Span<float> row_weights;  // [NvS]
  // Of the last dispatch, prepare_dispatch or prepare_source that made a plan.
  PlanArrays plan;
  // Its caller adds to those of slots between operations, in the order of plan.experts_to_copy;
  // reduce_gradients brings them home, and clears the slots that the plan uses.
  RankGradients gradients;
  // Written by prefetch_weights, in the order of plan.experts_to_copy; for experts of the
  // framework's own.
  RankSlots slots;
  RankSource source;
  // The index of CUDA's device, in this process, whose addresses all of these are; -1: the host's.
  int device = -1;
  // [R] every rank's [NvS, H], the own among them, of a buffer with peer_store: a producer of one's
  // own stores token i's row where plan.dst says, from the end of prepare_dispatch until it submits
  // publish. At other times it is another's memory. Else empty, and of a remote rank; see
  // TakePeerRows.
  std::vector<BFloat16*> peer_rows;
  AccessSet peer_access;  // what is legal there
  // By index; none where the buffer has none, and of a remote rank.
  std::vector<RankOutputSlot> output_slots;

  // peer_rows, for a producer that accesses them in the ways of `needed`. FAILED_PRECONDITION: the
  // buffer has no peer_store, or the rank is remote; INVALID_ARGUMENT, naming both: less is legal.
  absl::StatusOr<std::vector<BFloat16*>> TakePeerRows(AccessSet needed) const;
};

// From one thread at a time; clients of different ranks from different threads. What Submit and
// Wait return is about the way to the worker; how a command ended is in its completion, whose
// status, reason and place are those of RankStatus (proto/v1/error.proto).
class RankClient {
 public:
  virtual ~RankClient() = default;  // Detach

  virtual const Geometry& geometry() const = 0;
  virtual int32_t hidden_size() const = 0;  // H
  virtual RankId rank() const = 0;
  virtual Generation generation() const = 0;
  // The same as long as the client lives. After Detach it is memory of this process alone.
  virtual RankMemory memory() const = 0;

  // The source shard, for who accesses it in the ways of `needed`. INVALID_ARGUMENT, naming what
  // its mapping allows and what is needed, where it allows less; FAILED_PRECONDITION: there is none
  // here.
  absl::StatusOr<RankSource> TakeSource(AccessSet needed) const;

  // Its number, for Wait; they ascend from 0. Does not wait for anything. RESOURCE_EXHAUSTED:
  // kCommandSlots commands are under way; FAILED_PRECONDITION: detached. Else the way to the rank
  // is over, and this is why. Nothing was submitted then.
  absl::StatusOr<uint64_t> Submit(const LocalOperation& operation) {
    return SubmitProgram(absl::MakeConstSpan(&operation, 1));
  }
  // Submits a list, as a step has it, at once: all of it or nothing, whatever becomes of this
  // process. They run in their order, as if each were submitted alone. Where one fails, those
  // behind it that need what it would have made are refused; on a GPU so are all that are launched
  // already: DECLINED, they have moved nothing. The number of the first. Errors as Submit;
  // INVALID_ARGUMENT: none, or more than kCommandSlots.
  virtual absl::StatusOr<uint64_t> SubmitProgram(absl::Span<const LocalOperation> operations) = 0;
  // How it ended. DEADLINE_EXCEEDED: it is still under way; OUT_OF_RANGE: no such command, or more
  // than kCommandSlots have followed it; FAILED_PRECONDITION: detached; else the way to the rank is
  // over, and this is why: no command that has not ended will.
  virtual absl::StatusOr<LocalCompletion> Wait(uint64_t command, absl::Duration timeout) = 0;
  // Submit, behind what `stream`, of the memory's device, has been given so far: the worker begins
  // it when all that has ended, without this thread's waiting. Where it has not in half the
  // operations' timeout, the command ends with DEADLINE_EXCEEDED. FAILED_PRECONDITION: the memory
  // is no device's.
  absl::StatusOr<uint64_t> SubmitBehind(CUstream_st* stream, const LocalOperation& operation) {
    return SubmitProgramBehind(stream, absl::MakeConstSpan(&operation, 1));
  }
  // SubmitProgram likewise: the first waits for the stream, the others for those before them.
  virtual absl::StatusOr<uint64_t> SubmitProgramBehind(CUstream_st* stream,
                                                       absl::Span<const LocalOperation> operations);
  // What `stream` is given from here on waits until the command has ended, well or not, or the way
  // to the rank has. Errors as SubmitBehind.
  virtual absl::Status MakeWait(CUstream_st* stream, uint64_t command);
  // LocalReleaseSlot of a dispatch-output slot whose last read is what `stream`, which is behind
  // the slot's dispatch, has been given so far. Nothing waits for that but a dispatch that takes
  // the slot again, on the device. Errors as SubmitBehind; INVALID_ARGUMENT: no such slot.
  virtual absl::StatusOr<uint64_t> ReleaseSlotBehind(CUstream_st* stream, const LocalSlot& slot);
  // The last read of whoever has the slot of this index is what a captured stream has been given so
  // far. With each launch of the graph, behind a dispatch that is known to have ended well, a
  // LocalReleaseSlot with SlotRead::kByGraph is submitted, or the slot is released in another way
  // that is over no earlier than the graph. Errors likewise; FAILED_PRECONDITION, too: no stream
  // has been used with the client yet, which takes what no capture allows.
  virtual absl::Status CaptureSlotRead(CUstream_st* stream, int32_t index);
  // Submit and Wait. The completion's own status is not looked at.
  absl::StatusOr<LocalCompletion> Run(const LocalOperation& operation, absl::Duration timeout);

  // Why the way to the rank is over, with all that is known of it; none while it is not, and after
  // Detach.
  virtual absl::optional<LocalCompletion> End() = 0;

  // Leaves in good order, and waits for the worker to have let go. No command is under way.
  // Idempotent.
  virtual absl::Status Detach() = 0;
};

// Where the parts of a source shard that lies at `block` are.
RankSource SourceAt(const Geometry& geometry, int32_t hidden, std::byte* block, AccessSet access);
// The areas of dispatch-output slots behind a shard's own, whose rows lie at `rows`.
std::vector<RankOutputSlot> OutputSlotsAt(const Geometry& geometry, int32_t hidden, int32_t slots,
                                          BFloat16* rows);
// INVALID_ARGUMENT where there is no slot of this index.
absl::Status CheckOutputSlot(size_t slots, int32_t index);
// Of a capture before any other use of a stream.
absl::Status NoStreamBefore();
// What lies in an arena of the client's shape; no shard.
RankMemory ArenaMemory(const Geometry& geometry, int32_t hidden, const ClientArenaView& arena);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_RANK_CLIENT_H_
