// The rows of a rank's groups, from its plan.
#ifndef PERIGEE_KERNELS_CUDA_GROUP_ROWS_CUH_
#define PERIGEE_KERNELS_CUDA_GROUP_ROWS_CUH_

#include <cstdint>

#include "kernels/cuda/plan_view.h"

namespace perigee {

// Padding rows follow the rows with routes: [begin, filled), then [filled, end).
struct DeviceGroupRows {
  int32_t begin = 0;
  int32_t filled = 0;
  int32_t end = 0;
};

__device__ inline DeviceGroupRows RowsOfGroup(const PlanView& plan, int32_t group) {
  DeviceGroupRows rows;
  rows.begin = group == 0 ? 0 : plan.cu_seqlens[group - 1];
  rows.end = plan.cu_seqlens[group];
  rows.filled = rows.end - plan.zero_fill_ranges[2 * group + 1];
  return rows;
}

// Expert in one of the rank's slots, -1 where it is empty.
__device__ inline int32_t ExpertInSlot(const PlanView& plan, const Geometry& geometry, int32_t rank,
                                       int32_t slot) {
  return plan.experts_to_copy[int64_t{rank} * geometry.slots + slot];
}

// Up to the last group's end; those past it are undefined.
__device__ inline int32_t UsedRows(const PlanView& plan, const Geometry& geometry) {
  return plan.cu_seqlens[geometry.groups() - 1];
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_GROUP_ROWS_CUH_
