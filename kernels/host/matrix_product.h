// The matrix products of run_experts on a CPU: fp32 rows times a panel of bf16 columns.
//
// Accumulation order: every output element is the sum over the depth in ascending order, starting
// from 0, whatever rows and columns are computed beside it. So a result depends neither on how rows
// are split among threads nor on the other rows (a NaN stays in its row). Where the CPU has fused
// multiply-add it is used: results are the same bits on every run of one machine, not on all.
#ifndef PERIGEE_KERNELS_HOST_MATRIX_PRODUCT_H_
#define PERIGEE_KERNELS_HOST_MATRIX_PRODUCT_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"

namespace perigee {

inline constexpr int32_t kPanelColumns = 16;

// panel [depth, kPanelColumns] fp32: columns [column, column + kPanelColumns) of matrix
// [depth, columns]; those past its last column are zero.
void PackPanel(const BFloat16* matrix, int32_t depth, int32_t columns, int32_t column,
               float* panel);

// out [row_count, kPanelColumns] = rows [row_count, depth] * panel. No two of them overlap.
void MultiplyPanel(const float* rows, int32_t row_count, int32_t depth, const float* panel,
                   float* out);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_MATRIX_PRODUCT_H_
