// The interface of a data path: what both backends (host, cuda) implement and one contract suite
// (tests/contract) holds them to.
//
// A Backend stands for one worker's device: it allocates memory, exports it and imports that of
// peers. A DataPath is one rank's side of one buffer in one generation: it runs the operations.
//
// Ownership: callers own every Memory and keep it alive while a DataPath made from it lives.
// Pointers in arguments are addresses that this backend can read and write (host addresses here,
// device addresses on a GPU), owned by the caller, untouched after the operation has ended.
#ifndef PERIGEE_KERNELS_BACKEND_H_
#define PERIGEE_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/plan_arrays.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

class BufferRings;        // kernels/buffer_rings.h
class DirectPublication;  // kernels/direct_publication.h
class OwnerSource;        // kernels/owner_source.h
class RowProducer;        // kernels/row_producer.h

enum class PeerAccess { kReadWrite, kReadOnly };

// Memory of one backend. Unmapped and freed by its destructor, which never blocks on a peer.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size_bytes() const = 0;
  // A descriptor that another process of this host can import; borrowed. -1 for private memory and
  // for imported memory.
  virtual int descriptor() const = 0;
};

// How what ranks send gets to other ranks.
enum class Transport {
  // They load and store each other's memory, over NVLink or, on the host, in shared memory.
  kNvlink,
  // Messages by NCCL, for GPUs whose memory peers cannot map: rows are staged on either side. The
  // same results, to the bit; CUDA backend only.
  kNccl,
};

struct BackendInfo {
  std::string name;           // "host" or "cuda"
  std::string device;         // what it runs on, for people
  uint64_t memory_bytes = 0;  // of the device
  uint64_t free_bytes = 0;
  std::string device_uuid = "";  // "GPU-..."; empty where its memory is the host's
};

// One rank's tokens for a dispatch. token_count of S rows are valid; the others are not read.
struct DispatchInput {
  const BFloat16* hidden = nullptr;       // [S, H]
  const int32_t* topk_experts = nullptr;  // [S, K], -1 = masked route; not used with a saved plan
  const float* route_weights = nullptr;   // [S, K], or null: row weights are then not written
  int32_t token_count = 0;
};

// Copies of what a dispatch delivered; null pointers where the caller reads the shard in place.
struct DispatchOutput {
  BFloat16* rows = nullptr;      // [NvS, H]
  float* row_weights = nullptr;  // [NvS]
  // Of a dispatch that plans, all of them or none; written only where it ends well.
  PlanArrays plan = {};
};

struct CombineInput {
  // [NvS, H]. DataPath::rows() itself is the zero-copy form: primary rows are then changed in place
  // by the local sum. Any other address is first copied into the shard.
  const BFloat16* rows = nullptr;
  // [NvS], DataPath::row_weights() (zero copy), another address, or null: weights are not gathered.
  const float* row_weights = nullptr;
  // The caller has written the weights in the shard itself: whether a dispatch has left any does
  // not matter. Only with DataPath::row_weights().
  bool own_weights = false;
  // Likewise the rows. Only with DataPath::rows().
  bool own_rows = false;
};

struct CombineOutput {
  BFloat16* hidden =
      nullptr;  // [S, H]; rows past the plan's token count and fully masked tokens: 0
  float* route_weights = nullptr;  // [S, K]; null exactly where CombineInput::row_weights is null
};

// One layer's expert weights as one rank sees them (kernels/layout/weights_layout.h has the
// shapes).
struct ExpertWeights {
  int32_t layer = 0;
  uint64_t version = 0;                // that the caller means; every home block must hold it
  std::vector<const std::byte*> home;  // [R] mapped home blocks, this rank's own included
  std::byte* slots = nullptr;          // this rank's slot block, null when B = 0
  WeightsShape shape;
};

struct RunExpertsInput {
  const BFloat16* rows = nullptr;  // [NvS, H], grouped by the plan's cu_seqlens
  const float* row_weights =
      nullptr;                 // [NvS]; each row's result is scaled by its weight; null: not
  BFloat16* output = nullptr;  // [NvS, H]; may be `rows` itself
};

// One layer's expert gradients as one rank sees them, fp32, in the shapes of the weights.
struct ExpertGradients {
  int32_t layer = 0;
  WeightsShape shape;
  // This rank's own experts, summed into: gate [E/R, H, H'], up [E/R, H, H'], down [E/R, H', H].
  float* home_gate = nullptr;
  float* home_up = nullptr;
  float* home_down = nullptr;
  // [R] every rank's slot gradients as mapped here, this rank's own included
  // (kernels/layout/gradients_layout.h, of B).
  std::vector<const std::byte*> slots;
  std::byte* own_slots = nullptr;  // this rank's own, to be cleared
};

// A plan's tensors, copied out for people and tests (shapes in design terms: docs/planning.md).
struct PlanTensors {
  std::vector<int32_t> dst;               // [S * K] of this rank's routes
  std::vector<int32_t> cu_seqlens;        // [E + B] of this rank's groups
  std::vector<int32_t> zero_fill_ranges;  // [E + B, 2]
  std::vector<int32_t> experts_to_copy;   // [R, B], all ranks'
  std::vector<int32_t> load;              // [R] rows each rank computes
  std::vector<int32_t> home_load;     // [R] routes to each rank's home experts, before balancing
  std::vector<int32_t> remote_stats;  // [2]
  std::vector<int32_t>
      duplicate_groups;                 // [groups, 3]: primary row, start in duplicate_rows, count
  std::vector<int32_t> duplicate_rows;  // [duplicates]
};

// A plan as its backend keeps it: immutable, shared by reference count, bound to the DataPath that
// made it. The tag says which buffer, generation and operation made it.
class PlanHandle {
 public:
  virtual ~PlanHandle() = default;
  virtual ObjectTag tag() const = 0;
};
using PlanPtr = std::shared_ptr<const PlanHandle>;

// What becomes of dispatched rows when the experts have read them.
enum class RowsAfterwards {
  kDone,    // nobody needs them
  kKept,    // whoever read them needs them where they are, for backward
  kCopied,  // likewise, but has copied them
};

// Rings of slots (kernels/buffer_rings.h); 0: off, and no memory is taken.
struct RingOptions {
  int32_t dispatch_slots = 0;  // the same on all ranks; shards are laid out with them
  int32_t expert_slots = 0;    // memory of this rank's own
  RowsAfterwards rows = RowsAfterwards::kDone;  // in dispatch-output slots, which refuse kKept
};

struct DataPathOptions {
  Geometry geometry;
  int32_t hidden = 0;  // H, a multiple of 8
  // H' of the largest expert weights that RunExperts will be called with, so that no operation has
  // to wait for memory; 0: not known.
  int32_t intermediate = 0;
  RankId rank;
  BufferId buffer;
  Generation generation;
  Transport transport = Transport::kNvlink;
  // Of Transport::kNccl: what Backend::NewRendezvous has made, the same for all ranks and of no
  // other data path.
  std::string rendezvous = "";
  // Each rank's shard [R] as mapped here, this rank's own included (kernels/layout/shard_layout.h).
  // With Transport::kNccl the places of peers are not touched and may hold the own one; likewise
  // peers' home blocks and slot gradients.
  std::vector<std::byte*> shards;
  // The second part of each [R], where it is memory apart; empty: it lies behind the first.
  std::vector<std::byte*> shard_rows;
  // Each rank's source shard [R] as mapped here (kernels/layout/source_layout.h): this rank's own
  // can be written, those of peers need not. Empty: there is no owner-sharded source, and none of
  // it costs a byte. Not with Transport::kNccl.
  std::vector<std::byte*> sources;
  absl::Duration operation_timeout = absl::Seconds(10);
  // The same for the first collective operation, which waits for ranks that still start. Zero: as
  // operation_timeout.
  absl::Duration warmup_timeout = absl::ZeroDuration();
  RingOptions rings;
  int threads = 1;  // host backend: threads that share one operation's rows
  // The rest is for the CUDA backend.
  // SMs of kernels that wait for peers or reach into their memory, reserved while the data path
  // lives; 0: the backend's default.
  int32_t sms = 0;
  // SMs of kernels that stay in this rank's memory (expansion, local sum). They wait for nobody, so
  // they are not reserved. 0: all that the backend may use.
  int32_t local_sms = 0;
  // Where local_sms exceeds sms: what a dispatch writes and a combine sums within this rank is done
  // by a kernel of the SMs between, beside the one that reaches peers, instead of by or ahead of
  // that.
  bool own_rows_beside = true;
  // Of a combine, that is, where a buffer has so many tokens: fewer do not occupy such a kernel.
  int32_t sums_beside_from_tokens = 1024;
  bool programmatic_launch = true;    // programmatic dependent launch within an operation
  bool high_priority_stream = false;  // the stream's kernels go before others' on the device
};

// What durations() are of.
enum class Timing {
  kOperations,  // each operation
  kMarks,       // what lies between two marks; operations have nothing between them
};

// What Poll has seen.
struct Polled {
  // How many more operations have ended well, in the order of their calls.
  size_t ended = 0;
  // Something has failed behind these: Synchronize tells what, and Poll nothing more until then.
  bool failed = false;
};

// What ProbeCopy copies onto.
enum class CopyProbe {
  kOwnShard,  // the second half of the own rows
  kNextRank,  // the second half of those of rank (r + 1) % R
};

// One rank of one buffer in one generation. Operations are called from one thread at a time, in the
// same order with the same sequence on every rank, and run in that order. Abort and RequestCancel
// may be called from any thread at any time.
//
// Every operation checks its arguments before anything is touched (INVALID_ARGUMENT: refused,
// nothing changed). After that an error means aborted: outputs are undefined, last_error() says
// where it stood and AllRanksLeave(reason) whether the generation can go on. Codes:
// INVALID_ARGUMENT for kBadRoute and kDisagreement, CANCELLED, FAILED_PRECONDITION for kDeclined,
// UNAVAILABLE for kAborted, DEADLINE_EXCEEDED, FAILED_PRECONDITION for kOutOfStep and
// kStaleWeights. The message names the ranks concerned.
class DataPath {
 public:
  virtual ~DataPath() = default;

  // Collective. Plans, and moves every row and weight to its place; on return the shard holds this
  // rank's rows grouped by expert, padding zeroed, duplicates expanded.
  virtual absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                           const DispatchOutput& output) = 0;
  // Collective. The same movement by a plan this DataPath made before; routes are ignored.
  virtual absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan,
                                        const DispatchInput& input,
                                        const DispatchOutput& output) = 0;
  // Collective. Copies the weights of this rank's remote experts from their homes into its slots
  // and tags them. Slots that the plan leaves unused keep what they hold.
  virtual absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                                       const ExpertWeights& weights) = 0;
  // Collective. The same where the copies may go on beside the operations called after it, up to
  // the next Join or Synchronize: none of these may use the slots. Called right behind the dispatch
  // that makes the plan, the copies may begin when the plan is made: homes are loaded before that
  // dispatch. The weights of a home may be replaced when all ranks have passed an operation that
  // comes after the Join. A home that held others is told by the Join.
  virtual absl::Status PrefetchWeightsBeside(Sequence sequence, const PlanPtr& plan,
                                             const ExpertWeights& weights) {
    return PrefetchWeights(sequence, plan, weights);
  }
  // Local. Operations called after it wait for the copies of the last PrefetchWeightsBeside. Where
  // queues() is true it is one of the operations that are counted and timed; nothing, and not
  // counted, where no copies run beside.
  virtual absl::Status Join() { return absl::OkStatus(); }
  // Local. Grouped SwiGLU over the plan's groups; remote experts beyond B read their home's weights
  // in place. FAILED_PRECONDITION when a slot's tag is not {layer, expert, version} of this plan.
  virtual absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                                  const RunExpertsInput& input) = 0;
  // Collective. Sums each token's rows in order of k, duplicates on their rank first.
  virtual absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                               const CombineOutput& output) = 0;
  // Collective. Adds the gradients that the slots hold for this rank's own experts to these: the
  // rank's own gradient first, then the slots that the plan gives the expert in ascending (rank,
  // slot), one fp32 sum after the other, so the bits are the same on every run. When all ranks have
  // read, each clears the slots of its own that the plan uses; unused ones keep what they hold.
  // Orders what any rank has written to its slots before. INVALID_ARGUMENT where B < E/R: experts
  // without a slot would have no gradients. An error after the entry says that the sums are
  // undefined.
  virtual absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                                       const ExpertGradients& gradients) = 0;
  // Collective. Waits for every rank.
  virtual absl::Status Barrier(Sequence sequence) = 0;
  // Local. Copies the first `rows` of this rank's rows in the shard, NvS / 2 at most, to where the
  // second half begins: what a plain copy takes, to hold the other operations against. The rows in
  // the shards are undefined after it; of 0 rows they stay, and nothing else differs. Callers put
  // barriers around it where a neighbour's rows are overwritten; with Transport::kNccl it then
  // waits for that neighbour's part, which has as many rows as this one.
  virtual absl::Status ProbeCopy(CopyProbe probe, int64_t rows) = 0;
  // Takes this rank's part in the entry barrier of an operation that it refuses to launch (its
  // input is missing, an object is dead), whatever the operation is: all ranks leave at this
  // sequence, the others with kDeclined naming this rank, instead of waiting for it until their
  // deadline. OK when they have all been told.
  virtual absl::Status Decline(Sequence sequence) = 0;

  // Whether operations may still be running when their calls return OK; Synchronize then tells what
  // became of them. What is queued behind an operation that fails moves nothing, but takes its part
  // in its entry barrier and declines: the ranks stay at the same sequence.
  virtual bool queues() const { return false; }
  // Waits, bounded by the operations' own timeouts, until all that were called have ended; the
  // first error of those that could not report it when called. last_error() is then of that one.
  virtual absl::Status Synchronize() = 0;
  // How many of the operations that the last Synchronize waited for have ended well, in the order
  // of their calls: the next one is the first that failed. 0 where queues() is false.
  virtual size_t operations_ended() const { return 0; }
  // Never waits. What it counts as ended is told once: Synchronize has nothing more to say of it.
  // With Timing::kOperations only.
  virtual Polled Poll() { return Polled(); }

  // The rest does nothing where queues() is false: callers time their calls.
  //
  // What is timed from here on; kOperations at first. Not while operations have yet to be waited
  // for.
  virtual void set_timing(Timing) {}
  // A mark between the operations called before it and those called after it. With kMarks only
  // (FAILED_PRECONDITION).
  virtual absl::Status MarkTime() { return absl::OkStatus(); }
  // Of what the last Synchronize or Poll has told, up to the first operation that failed: how long
  // each operation took, in the order of their calls; with kMarks, the times from each mark to the
  // next.
  virtual std::vector<absl::Duration> durations() const { return {}; }

  // Raises the abort word: the operation under way and all later ones end with kAborted, naming
  // lost_rank (-1: no single one) and the reason in words.
  virtual void Abort(int32_t lost_rank, const std::string& reason) = 0;
  // Publishes a wish to cancel at the entry of the next collective operation; all ranks leave
  // there.
  virtual void RequestCancel(bool wanted) = 0;

  // Direct publication by this data path; null where it has none, and dispatch is the only way.
  virtual DirectPublication* publication() { return nullptr; }
  // The owner-sharded source of this data path; null where it was made without one.
  virtual OwnerSource* source() { return nullptr; }
  // The producer that comes with this data path; null where none does.
  virtual RowProducer* producer() { return nullptr; }
  // Rings of slots by this data path; null where it has none.
  virtual BufferRings* rings() { return nullptr; }

  virtual absl::optional<ErrorRecord> last_error() const = 0;
  virtual absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const = 0;
  virtual BFloat16* rows() const = 0;      // this rank's [NvS, H] in its shard
  virtual float* row_weights() const = 0;  // this rank's [NvS]
};

// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;
  // Zeroed, page aligned, sealed before it can be handed out: a peer cannot shrink it, and where
  // access is read only cannot map it writable.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                                 PeerAccess access) = 0;
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) = 0;
  // Whether a process beside this one can work in shared memory of this backend with nothing but
  // its descriptors: OK, or UNIMPLEMENTED, saying so.
  virtual absl::Status CheckAttachable() const {
    return absl::UnimplementedError(
        absl::StrCat("local clients cannot attach to backend ", info().name, " yet"));
  }
  // Maps a peer's memory; takes ownership of the descriptor, also on failure. INVALID_ARGUMENT
  // where it is not memory of this backend, sealed, and size_bytes long.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                         PeerAccess access) = 0;
  // Blocking copies between host memory and memory of this backend.
  virtual absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) = 0;
  virtual absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) = 0;
  virtual absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) = 0;
  // By which the ranks of one data path over Transport::kNccl find each other: one rank makes it,
  // and stays. UNIMPLEMENTED, saying so, where there is no such transport.
  virtual absl::StatusOr<std::string> NewRendezvous() {
    return absl::UnimplementedError(
        absl::StrCat("backend ", info().name, " has no transport nccl, expected backend cuda"));
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_BACKEND_H_
