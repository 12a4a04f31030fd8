// Rings of slots: memory for what a dispatch delivers and for what experts give, used again and
// again, so that a schedule with several dispatches pending holds a bounded number of outputs.
//
// A dispatch-output slot is an area of rows and weights in every rank's shard, because peers write
// it: all ranks take slots in the same order by sequence, and each says at the operation's entry
// that its own is free. An expert-output slot is memory of this rank alone.
//
//   free -> acquired (a fresh identity) -> released (the last read is recorded) -> free
//
// Whoever acquires a slot that is released waits for that last read on the device, bounded: of a
// dispatch, half its timeout. Where the read has not ended by then, all ranks leave (kDeclined) and
// the slot stays released. No acquisition waits for a slot that has not been released: it is
// refused, naming the number of slots that would do.
//
// Who releases: RunExperts a dispatch-output slot, Combine an expert-output slot, or Release. What
// an operation that fails has acquired or released it has not: the slots are as before it.
#ifndef PERIGEE_KERNELS_BUFFER_RINGS_H_
#define PERIGEE_KERNELS_BUFFER_RINGS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "kernels/layout/plan_arrays.h"

struct CUstream_st;  // what cudaStream_t points to

namespace perigee {

enum class RingKind : uint32_t { kDispatchOutput = 0, kExpertOutput = 1 };

// One rank's ring of one buffer in one generation.
struct RingId {
  RingKind kind = RingKind::kDispatchOutput;
  BufferId buffer;
  Generation generation;
  RankId rank;
  friend constexpr bool operator==(const RingId&, const RingId&) = default;
};

// One acquisition of a slot: copies are of the same one.
struct RingSlot {
  RingId ring;
  int32_t index = -1;
  // Of a dispatch-output slot the sequence of its dispatch, else a count; grows; 0: no acquisition.
  uint64_t identity = 0;
  friend constexpr bool operator==(const RingSlot&, const RingSlot&) = default;
};

// What has become of an acquisition, for this ring.
enum class SlotState {
  kAcquired,  // it has the slot
  kReleased,  // it has been released, and its last read goes on
  kFree,      // likewise, and that has ended
  kOver,      // another one has, or had, the slot since; or it was undone
  kForeign,   // it is of another ring
};

// Where a slot's rows are, in addresses of its data path.
struct SlotMemory {
  BFloat16* rows = nullptr;      // [NvS, H]
  float* row_weights = nullptr;  // [NvS]; null of an expert-output slot
};

struct SlotDispatched {
  PlanPtr plan;
  RingSlot slot;
};

struct SlotExperts {
  bool apply_route_weights = false;  // the slot's own row weights
  // [NvS, H]: the shard's rows, which a combine then takes in place, or memory outside the shard;
  // null: an expert-output slot.
  BFloat16* output = nullptr;
  bool keeps_rows = false;  // the dispatch-output slot is not released
};

// A word that says that a last read has ended. Any thread may do so, once.
class ReleaseWord {
 public:
  explicit ReleaseWord(uint64_t* word = nullptr) : word_(word) {}
  void Pass() const;

 private:
  uint64_t* word_;
};

// A side of a DataPath: threads, order, sequences and errors are those of its operations. Refused,
// nothing changed, are slots of another ring, those that are over and those released twice
// (INVALID_ARGUMENT, each with its own words), and an acquisition where none is left
// (RESOURCE_EXHAUSTED).
class BufferRings {
 public:
  virtual ~BufferRings() = default;

  // Collective. DataPath::Dispatch and DispatchWithPlan whose rows lie in the next slot; what the
  // shard holds stays, but a target of direct publication that is not prepared dies.
  virtual absl::StatusOr<SlotDispatched> Dispatch(Sequence sequence, const DispatchInput& input,
                                                  const PlanArrays& plan_output) = 0;
  virtual absl::StatusOr<RingSlot> DispatchWithPlan(Sequence sequence, const PlanPtr& plan,
                                                    const DispatchInput& input) = 0;
  // Local. DataPath::RunExperts out of place, on the rows of a dispatch-output slot. The
  // expert-output slot that it acquired, without an identity where there is none.
  virtual absl::StatusOr<RingSlot> RunExperts(const RingSlot& slot, const PlanPtr& plan,
                                              const ExpertWeights& weights,
                                              const SlotExperts& experts) = 0;
  // Collective. DataPath::Combine of an expert-output slot. row_weights: CombineInput's.
  virtual absl::Status Combine(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                               const float* row_weights, const CombineOutput& output) = 0;

  // Local. An expert-output slot for whoever computes without RunExperts, in the order of the data
  // path's operations, with rows of the plan.
  virtual absl::StatusOr<RingSlot> AcquireExpertOutput(const PlanPtr& plan) = 0;

  // Each releases a slot. Streams and words pass behind the slot's dispatch, as every reader of its
  // rows does: one that still runs would clear the mark, and the next would wait for it in vain.
  //
  // The last read is what was called before this.
  virtual absl::Status Release(const RingSlot& slot) = 0;
  // Its last read is what has been submitted to the stream; of a dispatch-output slot, with backend
  // cuda (UNIMPLEMENTED).
  virtual absl::Status ReleaseOnStream(const RingSlot& slot, CUstream_st* stream) = 0;
  // It ends when the word, which lives as long as the data path, is passed; of a dispatch-output
  // slot.
  virtual absl::StatusOr<ReleaseWord> ReleaseByWord(const RingSlot& slot) = 0;
  // Puts the passing of that word into a stream that is being captured, for whichever acquisition
  // has this dispatch-output slot when the graph runs, and releases nothing: ReleaseByWord does,
  // once for each run. With backend cuda.
  virtual absl::Status CaptureRelease(int32_t index, CUstream_st* stream) = 0;

  // Releases all that are acquired, as Release does: what they hold is given up.
  virtual absl::Status ReleaseAll() = 0;

  // These change nothing, whatever they are asked.
  virtual SlotState Probe(const RingSlot& slot) const = 0;
  virtual absl::StatusOr<SlotMemory> MemoryOf(const RingSlot& slot) const = 0;  // while acquired
  virtual int32_t slots(RingKind ring) const = 0;
  virtual int32_t next(RingKind ring) const = 0;      // in turn
  virtual int32_t acquired(RingKind ring) const = 0;  // and not released
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_BUFFER_RINGS_H_
