// Grouped SwiGLU feed-forward over the rows of a rank. Group sizes are read on the device.
#ifndef PERIGEE_KERNELS_CUDA_RUN_EXPERTS_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_RUN_EXPERTS_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/cuda/weights_view.h"

namespace perigee {

// Up to kTileRows rows of one group, and what they are multiplied with.
struct ExpertTile {
  DeviceMatrices matrices;
  int32_t begin = 0;  // first row
  int32_t count = 0;
};
static_assert(sizeof(ExpertTile) == 32);

inline constexpr int32_t kTileRows = 64;

// Tiles that the groups of a rank can need at most.
inline int64_t MaxTiles(const Geometry& geometry) {
  const int64_t groups = geometry.groups() < 2 * geometry.experts_per_rank()
                             ? geometry.groups()
                             : int64_t{2} * geometry.experts_per_rank();
  return geometry.logical_rows() / kTileRows + groups;
}

struct ExpertsArguments {
  PlanView plan;
  WeightsView weights;
  const BFloat16* rows = nullptr;      // [NvS, H]
  const float* row_weights = nullptr;  // [NvS], or null
  BFloat16* output = nullptr;          // [NvS, H], may be `rows`
  BFloat16* h = nullptr;               // [NvS, H'] scratch
  ExpertTile* tiles = nullptr;         // [MaxTiles] scratch
  int32_t* tile_count = nullptr;       // scratch
};

// Refuses, before anything is written, where a slot or a home block holds other weights than the
// plan and the caller want; reports a home block that was loaded anew meanwhile. Padding rows of
// the output become zero, rows past the last group are left alone.
int LaunchRunExperts(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                     const ExpertsArguments& arguments);

// Loads the kernels, which their first launch would do at a worse time.
int LoadRunExpertsKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RUN_EXPERTS_LAUNCH_H_
