// kernels/algo's sum of rows, compiled for the vector instructions that the CPU has. Nothing but
// sums and integer operations: the bits are the same with and without them.
#ifndef PERIGEE_KERNELS_HOST_SUM_ROWS_H_
#define PERIGEE_KERNELS_HOST_SUM_ROWS_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"

namespace perigee {

// As SumRows (kernels/algo/row_sum.h).
void HostSumRows(const BFloat16* const* rows, int32_t count, int32_t hidden, BFloat16* out);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_SUM_ROWS_H_
