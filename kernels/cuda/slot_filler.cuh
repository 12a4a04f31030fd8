// Copies experts' weights from their homes into slots, by bulk copies.
#ifndef PERIGEE_KERNELS_CUDA_SLOT_FILLER_CUH_
#define PERIGEE_KERNELS_CUDA_SLOT_FILLER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/weights_view.h"

namespace perigee {

// How parts of weights are cut: every warp has stages of one piece each.
struct SlotStages {
  static constexpr int kThreads = 256;  // of a block
  static constexpr int kWarps = 4;      // of these, that copy
  static constexpr int kStages = 4;
  // Loads run ahead of stores by all stages but one whose store may still be reading.
  static constexpr int kAhead = kStages - 1;
  static constexpr int32_t kPieceBytes = 8192;
  static constexpr size_t kOffset = 32;  // of the first stage: see MoverShape::kStageOffset
  static constexpr size_t kSharedBytes = kOffset + size_t{kPieceBytes} * kStages * kWarps;
};

// Slots that the plan uses, with the experts that go there; the same in all blocks.
struct SlotList {
  static constexpr int32_t kMost = 512;
  int32_t count = 0;
  int32_t slot[kMost];
  int32_t expert[kMost];
};

// Those of slots [first, first + kMost). All threads of the block: each looks at its own slots, as
// one load waits for the other otherwise.
__device__ inline void ListSlots(const PathView& path, const PlanView& plan, int32_t first,
                                 SlotList& list) {
  const int32_t slots = min(path.geometry.slots - first, SlotList::kMost);
  __syncthreads();  // what the list had has been read
  for (auto i = static_cast<int32_t>(threadIdx.x); i < slots; i += SlotStages::kThreads) {
    list.expert[i] = ExpertInSlot(plan, path.geometry, path.rank, first + i);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int32_t count = 0;
    for (int32_t base = 0; base < slots; base += 32) {
      const int32_t at = base + LaneId();
      const int32_t expert = at < slots ? list.expert[at] : -1;
      const uint32_t used = __ballot_sync(0xffffffffu, expert >= 0);
      const int32_t to = count + __popc(used & ((1u << LaneId()) - 1));
      if (expert >= 0) {
        list.slot[to] = first + at;
        list.expert[to] = expert;
      }
      count += __popc(used);
      __syncwarp();
    }
    if (LaneId() == 0) list.count = count;
  }
  __syncthreads();
}

// One warp's side of it, which is its first lane's.
class SlotFiller {
 public:
  // `shared` has SlotStages::kSharedBytes. All threads of the block.
  __device__ SlotFiller(std::byte* shared, const PathView& path, const WeightsView& weights)
      : path_(path), weights_(weights) {
    __shared__ uint64_t loaded[SlotStages::kThreads / 32 * SlotStages::kStages];
    const int first_stage = static_cast<int>(threadIdx.x / 32) * SlotStages::kStages;
    loaded_ = loaded + first_stage;
    data_ = shared + SlotStages::kOffset + size_t{SlotStages::kPieceBytes} * first_stage;
    if (LaneId() == 0) {
      for (int stage = 0; stage < SlotStages::kStages; ++stage) InitArrival(&loaded_[stage]);
    }
    __syncwarp();
  }

  // This warp's pieces of all parts that are whole vectors. All of the grid's warps call it.
  // Returns when they are stored and seen by this warp.
  __device__ void Fill(const SlotList& list) {
    if (LaneId() == 0 && threadIdx.x < 32 * SlotStages::kWarps) {
      // What this thread has written here, and others to their homes, before bulk copies.
      FenceBeforeBulk();
      Cursor load = First(list);
      Cursor store = load;
      int ahead = 0;
      int load_stage = stage_;
      while (true) {
        for (; ahead < SlotStages::kAhead && load.slot < list.count; ++ahead) {
          AwaitStoresRead<SlotStages::kStages - SlotStages::kAhead>();
          Load(load_stage, list, load);
          Advance(list, load);
          load_stage = load_stage + 1 == SlotStages::kStages ? 0 : load_stage + 1;
        }
        if (ahead == 0) break;
        Store(list, store);
        Advance(list, store);
        --ahead;
      }
      AwaitStores();
    }
    __syncwarp();
  }

 private:
  // Which piece of which part of which slot of the list.
  struct Cursor {
    int32_t slot = 0;
    int32_t part = 0;
    int64_t piece = 0;
  };

  __device__ int64_t BytesOf(int part) const {
    const int64_t bytes = weights_.shape.part_bytes(part);
    return bytes % static_cast<int64_t>(sizeof(uint4)) == 0 ? bytes : 0;
  }
  __device__ void Skip(const SlotList& list, Cursor& cursor) const {
    while (cursor.slot < list.count) {
      const int64_t pieces =
          (BytesOf(cursor.part) + SlotStages::kPieceBytes - 1) / SlotStages::kPieceBytes;
      if (cursor.piece < pieces) return;
      cursor.piece -= pieces;
      if (++cursor.part == kWeightParts) {
        cursor.part = 0;
        ++cursor.slot;
      }
    }
  }
  __device__ Cursor First(const SlotList& list) const {
    Cursor cursor;
    cursor.piece = int64_t{blockIdx.x} * SlotStages::kWarps + threadIdx.x / 32;
    Skip(list, cursor);
    return cursor;
  }
  __device__ void Advance(const SlotList& list, Cursor& cursor) const {
    cursor.piece += int64_t{gridDim.x} * SlotStages::kWarps;
    Skip(list, cursor);
  }
  __device__ uint32_t BytesAt(const Cursor& cursor) const {
    const int64_t left = BytesOf(cursor.part) - cursor.piece * SlotStages::kPieceBytes;
    return static_cast<uint32_t>(min(left, int64_t{SlotStages::kPieceBytes}));
  }

  __device__ void Load(int stage, const SlotList& list, const Cursor& cursor) {
    const uint32_t bytes = BytesAt(cursor);
    const std::byte* from =
        HomePart(weights_, path_.geometry, list.expert[cursor.slot], cursor.part);
    ArriveExpecting(&loaded_[stage], bytes);
    BulkLoad(data_ + size_t{SlotStages::kPieceBytes} * stage,
             from + cursor.piece * SlotStages::kPieceBytes, bytes, &loaded_[stage]);
  }
  // The stage whose turn it is.
  __device__ void Store(const SlotList& list, const Cursor& cursor) {
    AwaitPhase(&loaded_[stage_], parity_);
    std::byte* to = SlotPart(weights_, list.slot[cursor.slot], cursor.part);
    BulkStore(to + cursor.piece * SlotStages::kPieceBytes,
              data_ + size_t{SlotStages::kPieceBytes} * stage_, BytesAt(cursor));
    CommitStores();
    if (++stage_ == SlotStages::kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

  const PathView& path_;
  const WeightsView& weights_;
  // The stage that is stored next, and the parity of its loads.
  int stage_ = 0;
  uint32_t parity_ = 0;
  std::byte* data_;
  uint64_t* loaded_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SLOT_FILLER_CUH_
