// How the warps of a block move rows through shared memory (row_mover.cuh).
#ifndef PERIGEE_KERNELS_CUDA_MOVER_SHAPE_H_
#define PERIGEE_KERNELS_CUDA_MOVER_SHAPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"

namespace perigee {

// Stages of a warp that stores a row to many places, and of one that stores it to few.
inline constexpr int32_t kSendStages = 3;
inline constexpr int32_t kExpandStages = 3;

// A row travels in pieces, each through one stage. Each warp has stages of its own.
struct MoverShape {
  uint32_t row_bytes = 0;
  uint32_t piece_bytes = 0;  // of all pieces of a row but the last; a multiple of 16
  int32_t pieces = 1;        // of a row
  int32_t warps = 1;
  int32_t stages = 2;  // of each warp

  static constexpr uint32_t kMostPieceBytes = 16384;
  static constexpr int32_t kMostWarps = 16;
  // Where the first stage begins, behind a multiple of 128 bytes. Measured: bulk copies take 3 %
  // longer at 0 and a quarter longer at 16 or 48.
  static constexpr uint32_t kStageOffset = 32;

  // Beside a stage: the arrival of its load, and where each lane stores it.
  PERIGEE_HOST_DEVICE constexpr uint32_t stage_bytes() const {
    return piece_bytes + sizeof(uint64_t) + 32 * sizeof(void*);
  }
  PERIGEE_HOST_DEVICE constexpr size_t shared_bytes() const {
    return kStageOffset + size_t{stage_bytes()} * stages * warps;
  }

  // For rows of row_bytes, a multiple of 16, with as much of shared_bytes as helps. `stages` of
  // each warp, 2 or more: copies in flight; what is left goes into more warps.
  static MoverShape Of(uint32_t row_bytes, size_t shared_bytes, int32_t stages) {
    MoverShape shape;
    shape.row_bytes = row_bytes;
    shape.pieces = static_cast<int32_t>((row_bytes + kMostPieceBytes - 1) / kMostPieceBytes);
    shape.piece_bytes = (row_bytes / shape.pieces + 15) / 16 * 16;
    shape.pieces = static_cast<int32_t>((row_bytes + shape.piece_bytes - 1) / shape.piece_bytes);
    shape.stages = stages;
    const auto warps =
        static_cast<int32_t>((shared_bytes - kStageOffset) / (shape.stage_bytes() * stages));
    shape.warps = std::clamp(warps, 1, kMostWarps);
    return shape;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_MOVER_SHAPE_H_
