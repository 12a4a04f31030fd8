// Sums matrices of gradients that bulk copies bring into shared memory.
#ifndef PERIGEE_KERNELS_CUDA_GRADIENT_SUMMER_CUH_
#define PERIGEE_KERNELS_CUDA_GRADIENT_SUMMER_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/gradients_view.h"
#include "kernels/cuda/row_vectors.cuh"

namespace perigee {

// The matrices that become one, in order: an own expert's at home, then those of the slots that
// hold the expert. A slot's address is that of its place among matrices without their kind's
// offset.
struct GradientSources {
  int32_t home_index = 0;  // of the expert among the rank's own
  int32_t slot_count = 0;
  const std::byte* slots[kControlPeers];
};

// How matrices are cut: a piece is kVectors vectors of 16 bytes a lane, and a stage holds a piece
// of kRows matrices; of more, one stage after the other.
struct GradientStages {
  static constexpr int kVectors = 4;
  static constexpr int kRows = 2;
  static constexpr int kStages = 3;  // of each warp
  static constexpr int kWarps = 16;  // of a block
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPieceBytes = 512 * kVectors;
  static constexpr int kStageBytes = kPieceBytes * kRows;
  static constexpr size_t kSharedBytes = size_t{kStageBytes} * kStages * kWarps;
};

// One warp's side of it.
class GradientSummer {
 public:
  // `shared` has GradientStages::kSharedBytes. All lanes of all warps of the block.
  __device__ GradientSummer(std::byte* shared, const GradientsView& gradients)
      : gradients_(gradients),
        matrix_bytes_(gradients.matrix_elements * static_cast<int64_t>(sizeof(float))),
        pieces_((matrix_bytes_ + GradientStages::kPieceBytes - 1) / GradientStages::kPieceBytes) {
    __shared__ uint64_t loaded[GradientStages::kWarps * GradientStages::kStages];
    const int warp = static_cast<int>(threadIdx.x / 32) * GradientStages::kStages;
    loaded_ = loaded + warp;
    data_ = shared + size_t{GradientStages::kStageBytes} * warp;
    if (LaneId() == 0) {
      for (int stage = 0; stage < GradientStages::kStages; ++stage) InitArrival(&loaded_[stage]);
    }
    FenceBeforeBulk();
    __syncwarp();
  }

  // This warp's pieces of all three matrices. All of the grid's warps call it, in turn for each
  // expert; `sources` are in shared memory and stay.
  __device__ void Sum(const GradientSources& sources) {
    Cursor load = First();
    Cursor add = load;
    int load_stage = stage_;
    int ahead = 0;
    while (true) {
      for (; ahead < GradientStages::kStages && load.kind < 3; ++ahead) {
        Load(load_stage, sources, load);
        Advance(load, sources.slot_count + 1);
        load_stage = load_stage + 1 == GradientStages::kStages ? 0 : load_stage + 1;
      }
      if (ahead == 0) return;
      AwaitPhase(&loaded_[stage_], parity_);
      Add(sources, add);
      Advance(add, sources.slot_count + 1);
      --ahead;
      if (++stage_ == GradientStages::kStages) {
        stage_ = 0;
        parity_ ^= 1;
      }
    }
  }

 private:
  // Which rows of which piece: `kind` is 3 past the last.
  struct Cursor {
    int32_t kind = 0;
    int32_t row = 0;
    int64_t piece = 0;
  };

  __device__ void SkipKinds(Cursor& cursor) const {
    for (; cursor.kind < 3 && cursor.piece >= pieces_; ++cursor.kind) cursor.piece -= pieces_;
  }
  __device__ Cursor First() const {
    Cursor cursor;
    cursor.piece = int64_t{blockIdx.x} * GradientStages::kWarps + threadIdx.x / 32;
    SkipKinds(cursor);
    return cursor;
  }
  __device__ void Advance(Cursor& cursor, int32_t rows) const {
    cursor.row += GradientStages::kRows;
    if (cursor.row < rows) return;
    cursor.row = 0;
    cursor.piece += int64_t{gridDim.x} * GradientStages::kWarps;
    SkipKinds(cursor);
  }
  __device__ std::byte* HomePiece(const GradientSources& sources, const Cursor& cursor) const {
    return reinterpret_cast<std::byte*>(gradients_.kinds[cursor.kind].home) +
           sources.home_index * matrix_bytes_ + cursor.piece * GradientStages::kPieceBytes;
  }
  __device__ uint32_t BytesOf(int64_t piece) const {
    const int64_t left = matrix_bytes_ - piece * GradientStages::kPieceBytes;
    return static_cast<uint32_t>(min(left, int64_t{GradientStages::kPieceBytes}));
  }

  __device__ void Load(int stage, const GradientSources& sources, const Cursor& cursor) {
    __syncwarp();  // all have read what the stage held
    const int32_t rows = min(GradientStages::kRows, sources.slot_count + 1 - cursor.row);
    const uint32_t bytes = BytesOf(cursor.piece);
    if (LaneId() == 0) ArriveExpecting(&loaded_[stage], rows * bytes);
    __syncwarp();
    if (LaneId() >= rows) return;
    const int32_t row = cursor.row + LaneId();
    const std::byte* from = row == 0
                                ? HomePiece(sources, cursor)
                                : sources.slots[row - 1] + gradients_.kinds[cursor.kind].offset +
                                      cursor.piece * GradientStages::kPieceBytes;
    BulkLoad(data_ + GradientStages::kStageBytes * stage + GradientStages::kPieceBytes * LaneId(),
             from, bytes, &loaded_[stage]);
  }

  // The stage whose turn it is: float4 by float4 in the order of rows, stored behind the last.
  __device__ void Add(const GradientSources& sources, const Cursor& cursor) {
    const std::byte* data = data_ + GradientStages::kStageBytes * stage_ + 16 * LaneId();
    const int32_t left = sources.slot_count + 1 - cursor.row;
#pragma unroll
    for (int row = 0; row < GradientStages::kRows; ++row) {
      if (row >= left) break;
#pragma unroll
      for (int i = 0; i < GradientStages::kVectors; ++i) {
        const float4 more =
            *reinterpret_cast<const float4*>(data + GradientStages::kPieceBytes * row + 512 * i);
        if (cursor.row + row == 0) {
          sums_[i] = more;
        } else {
          sums_[i].x += more.x;
          sums_[i].y += more.y;
          sums_[i].z += more.z;
          sums_[i].w += more.w;
        }
      }
    }
    if (left > GradientStages::kRows) return;
    std::byte* to = HomePiece(sources, cursor) + 16 * LaneId();
    const auto bytes = static_cast<int32_t>(BytesOf(cursor.piece));
#pragma unroll
    for (int i = 0; i < GradientStages::kVectors; ++i) {
      if (16 * LaneId() + 512 * i < bytes) *reinterpret_cast<float4*>(to + 512 * i) = sums_[i];
    }
  }

  const GradientsView& gradients_;
  const int64_t matrix_bytes_;
  const int64_t pieces_;  // of a matrix
  // The stage that is added next, and the parity of its loads.
  int stage_ = 0;
  uint32_t parity_ = 0;
  std::byte* data_;
  uint64_t* loaded_;
  float4 sums_[GradientStages::kVectors];
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_GRADIENT_SUMMER_CUH_
