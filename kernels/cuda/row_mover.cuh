// Moves rows by bulk copies: each is read once and stored to up to 32 places.
#ifndef PERIGEE_KERNELS_CUDA_ROW_MOVER_CUH_
#define PERIGEE_KERNELS_CUDA_ROW_MOVER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/mover_shape.h"
#include "kernels/cuda/row_tickets.cuh"
#include "kernels/cuda/row_vectors.cuh"

namespace perigee {

// One row and this lane's place for it; null: none.
struct RowMove {
  const void* from = nullptr;  // the same for all lanes
  void* to = nullptr;
};

// One warp's side of it.
class RowMover {
 public:
  // `shared` has shape.shared_bytes(), aligned to kSharedAlignment, that nobody else uses; `warp`
  // is below shape.warps. `again`: a mover of this shape was this warp's before. All lanes.
  __device__ RowMover(const MoverShape& shape, std::byte* shared, int32_t warp, bool again = false)
      : shape_(shape) {
    const int32_t all = shape.warps * shape.stages;
    shared += MoverShape::kStageOffset;
    stages_ = shared + size_t{shape.piece_bytes} * warp * shape.stages;
    std::byte* words = shared + size_t{shape.piece_bytes} * all;
    places_ = reinterpret_cast<void**>(words) + 32 * warp * shape.stages;
    words += size_t{32} * sizeof(void*) * all;
    loaded_ = reinterpret_cast<uint64_t*>(words) + warp * shape.stages;
    if (LaneId() == 0) {
      for (int32_t stage = 0; stage < shape.stages; ++stage) {
        if (again) EndArrival(&loaded_[stage]);
        InitArrival(&loaded_[stage]);
      }
    }
    FenceBeforeBulk();
    __syncwarp();
  }

  // Calls move_of(row) on all lanes for the rows that this warp gets. Returns when all has been
  // stored and is seen by this warp. Once.
  template <typename MoveOf>
  __device__ void Move(RowTickets tickets, const MoveOf& move_of) {
    // Loads run ahead of stores by all stages but one whose stores may still be reading.
    const int32_t most_ahead = shape_.stages > 2 ? shape_.stages - 1 : shape_.stages;
    int32_t ahead = 0;
    int64_t loads = 0;
    Cursor load;
    Cursor store;
    RowMove move;
    bool more = true;
    while (true) {
      while (more && ahead < most_ahead) {
        if (load.piece == 0) {
          const int64_t row = tickets.Take();
          more = row >= 0;
          if (!more) break;
          move = move_of(row);
        }
        if (loads >= shape_.stages) AwaitStage();
        Load(load.stage, move, load.piece);
        load.Advance(shape_);
        ++loads;
        ++ahead;
      }
      if (ahead == 0) break;
      Store(store.stage, store.parity, store.piece);
      store.Advance(shape_);
      --ahead;
    }
    AwaitStores();
  }

 private:
  // Which piece of a row comes next, and through which stage.
  struct Cursor {
    int32_t stage = 0;
    int32_t piece = 0;
    uint32_t parity = 0;  // of the stage's loads

    __device__ void Advance(const MoverShape& shape) {
      if (++piece == shape.pieces) piece = 0;
      if (++stage < shape.stages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  __device__ uint32_t BytesOf(int32_t piece) const {
    return min(shape_.piece_bytes, shape_.row_bytes - piece * shape_.piece_bytes);
  }
  // Until the stores of the stage that is loaded next have read it.
  __device__ void AwaitStage() {
    if (shape_.stages > 2) {
      AwaitStoresRead<1>();
    } else {
      AwaitStoresRead<0>();
    }
    __syncwarp();
  }
  __device__ void Load(int32_t stage, const RowMove& move, int32_t piece) {
    places_[32 * stage + LaneId()] = move.to;
    const bool wanted = __any_sync(0xffffffffu, move.to != nullptr) && move.from != nullptr;
    if (LaneId() != 0) return;
    if (!wanted) {
      Arrive(&loaded_[stage]);
      return;
    }
    const uint32_t bytes = BytesOf(piece);
    ArriveExpecting(&loaded_[stage], bytes);
    BulkLoad(
        stages_ + size_t{shape_.piece_bytes} * stage,
        static_cast<const std::byte*>(move.from) + static_cast<size_t>(piece) * shape_.piece_bytes,
        bytes, &loaded_[stage]);
  }
  __device__ void Store(int32_t stage, uint32_t parity, int32_t piece) {
    AwaitPhase(&loaded_[stage], parity);
    auto* to = static_cast<std::byte*>(places_[32 * stage + LaneId()]);
    if (to != nullptr) {
      BulkStore(to + static_cast<size_t>(piece) * shape_.piece_bytes,
                stages_ + size_t{shape_.piece_bytes} * stage, BytesOf(piece));
    }
    CommitStores();
  }

  const MoverShape shape_;
  std::byte* stages_;
  void** places_;     // [stages][32]
  uint64_t* loaded_;  // [stages]
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ROW_MOVER_CUH_
