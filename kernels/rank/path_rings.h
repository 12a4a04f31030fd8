// The rings of a data path, on every backend: an operation of BufferRings is one of the data path
// that works on a slot instead of the shard, and a step of the slot's ring.
#ifndef PERIGEE_KERNELS_RANK_PATH_RINGS_H_
#define PERIGEE_KERNELS_RANK_PATH_RINGS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buffer_rings.h"
#include "kernels/rank/rank_shape.h"
#include "kernels/rank/slot_ring.h"

namespace perigee {

// What a backend does for the rings of its data path. Of a dispatch-output slot it has a word: 1
// where the last read has ended. The entry of a collective operation on a slot awaits that, and
// clears the word where all ranks go on.
class RingSide {
 public:
  virtual ~RingSide() = default;
  // As RankShape::UseSlot, for all that the data path has.
  virtual void UseSlot(int32_t slot) = 0;
  // Sets the word behind what was called, unless an operation of that has failed; likewise when
  // the stream gets there, or the caller.
  virtual absl::Status FreeInOrder(int32_t slot) = 0;
  virtual absl::Status FreeOnStream(int32_t slot, CUstream_st* stream) = 0;
  virtual uint64_t* WordOf(int32_t slot) const = 0;  // in host memory
  // [NvS, H] of an expert-output slot.
  virtual BFloat16* ExpertRows(int32_t slot) const = 0;
  // Of what is called now, which is refused, there is none, as of an operation.
  virtual void ForgetError() = 0;
  // Of the operation called last, among all that were queued, modulo 2^32. Where nothing queues
  // it does not matter.
  virtual uint32_t last_place() const = 0;
};

// Not thread-safe.
class PathRings final : public BufferRings {
 public:
  // All outlive it. Settled and Undo are for those that queue.
  PathRings(const RingOptions& options, DataPath& path, RankShape& shape, RingSide& side);

  absl::StatusOr<SlotDispatched> Dispatch(Sequence sequence, const DispatchInput& input,
                                          const PlanArrays& plan_output) override;
  absl::StatusOr<RingSlot> DispatchWithPlan(Sequence sequence, const PlanPtr& plan,
                                            const DispatchInput& input) override;
  absl::StatusOr<RingSlot> RunExperts(const RingSlot& slot, const PlanPtr& plan,
                                      const ExpertWeights& weights,
                                      const SlotExperts& experts) override;
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                       const float* row_weights, const CombineOutput& output) override;
  absl::StatusOr<RingSlot> AcquireExpertOutput(const PlanPtr& plan) override;
  absl::Status Release(const RingSlot& slot) override;
  absl::Status ReleaseOnStream(const RingSlot& slot, CUstream_st* stream) override;
  absl::Status ReleaseAll() override;
  absl::StatusOr<ReleaseWord> ReleaseByWord(const RingSlot& slot) override;
  absl::Status CaptureRelease(int32_t index, CUstream_st* stream) override;
  SlotState Probe(const RingSlot& slot) const override { return Of(slot.ring.kind).Probe(slot); }
  absl::StatusOr<SlotMemory> MemoryOf(const RingSlot& slot) const override;
  int32_t slots(RingKind ring) const override { return Of(ring).size(); }
  int32_t next(RingKind ring) const override { return Of(ring).next(); }
  int32_t acquired(RingKind ring) const override { return Of(ring).acquired(); }

  // All operations before this place have ended well.
  void Ended(uint32_t place);
  // All others have not been done.
  void UndoRest();

 private:
  struct Step {
    uint32_t place = 0;  // of the operation that it is a part of
    bool acquires = false;
    RingSlot slot;
    LiveRows live_before = {};  // in an acquired dispatch-output slot, of who had it before
  };

  SlotRing& Of(RingKind kind) {
    return kind == RingKind::kDispatchOutput ? dispatch_output_ : expert_output_;
  }
  const SlotRing& Of(RingKind kind) const { return const_cast<PathRings*>(this)->Of(kind); }
  absl::StatusOr<RingSlot> TakeForDispatch(Sequence sequence);
  absl::StatusOr<RingSlot> TakeForExperts(const PlanPtr& plan);
  absl::Status ReleaseInOrder(const RingSlot& slot);
  // Back to the shard; `status`: of the dispatch into the slot.
  void EndDispatch(const RingSlot& slot, const absl::Status& status);
  absl::Status CheckDispatchOutput(const RingSlot& slot) const;
  void Note(bool acquires, const RingSlot& slot, const LiveRows& live_before = {});
  void Undo(const Step& step);

  DataPath& path_;
  RankShape& shape_;
  RingSide& side_;
  SlotRing dispatch_output_;
  SlotRing expert_output_;
  uint64_t expert_outputs_ = 0;         // acquired so far
  std::vector<Sequence> expert_plans_;  // of each expert-output slot, whose rows lie there
  LiveRows live_before_;                // Step::live_before of the dispatch that is being called
  std::vector<Step> steps_;             // of operations that may still fail
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_PATH_RINGS_H_
