// Device memory that run_experts works in: rows after the first product, and how the rows are cut
// into tiles.
#ifndef PERIGEE_KERNELS_CUDA_EXPERT_SCRATCH_H_
#define PERIGEE_KERNELS_CUDA_EXPERT_SCRATCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/common/bfloat16.h"
#include "kernels/cuda/cuda_rank.h"
#include "kernels/cuda/run_experts_launch.h"

namespace perigee {

struct ExpertScratch {
  BFloat16* h = nullptr;        // [NvS, H']
  ExpertTile* tiles = nullptr;  // [MaxTiles]
  int32_t* tile_count = nullptr;
};

// The rank's own, for one run_experts at a time in stream order. Allocated where what is there is
// too small, which may wait for all work on the device: a data path that knows H' takes it when it
// is made.
absl::StatusOr<ExpertScratch> TakeExpertScratch(CudaRank& rank, int32_t intermediate);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_EXPERT_SCRATCH_H_
