// One expert's feed-forward over a few rows.
#ifndef PERIGEE_KERNELS_HOST_EXPERT_ROWS_H_
#define PERIGEE_KERNELS_HOST_EXPERT_ROWS_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/host/weight_access.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

// Rows that share one conversion of the weights to fp32.
inline constexpr int32_t kExpertRows = 64;

struct ExpertRows {
  const BFloat16* rows = nullptr;      // [count, H]
  const float* row_weights = nullptr;  // [count], or null
  BFloat16* output = nullptr;          // [count, H]; may be `rows`
  int32_t count = 0;                   // at most kExpertRows
};

// output = (silu(rows @ gate) * (rows @ up)) @ down * row_weights; rounding: run_experts.h.
void RunExpertRows(const WeightsShape& shape, const ExpertMatrices& matrices,
                   const ExpertRows& work);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_EXPERT_ROWS_H_
