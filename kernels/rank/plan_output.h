// A plan's tensors to where a dispatch is to write them, on the host.
#ifndef PERIGEE_KERNELS_RANK_PLAN_OUTPUT_H_
#define PERIGEE_KERNELS_RANK_PLAN_OUTPUT_H_

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/layout/plan_arrays.h"

namespace perigee {

inline void WritePlan(const PlanTensors& tensors, Sequence sequence, const PlanArrays& to) {
  std::copy(tensors.dst.begin(), tensors.dst.end(), to.dst);
  std::copy(tensors.cu_seqlens.begin(), tensors.cu_seqlens.end(), to.cu_seqlens);
  std::copy(tensors.zero_fill_ranges.begin(), tensors.zero_fill_ranges.end(), to.zero_fill_ranges);
  std::copy(tensors.experts_to_copy.begin(), tensors.experts_to_copy.end(), to.experts_to_copy);
  std::copy(tensors.load.begin(), tensors.load.end(), to.load);
  std::copy(tensors.home_load.begin(), tensors.home_load.end(), to.home_load);
  *to.sequence = sequence.value;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_PLAN_OUTPUT_H_
