// Moving whole rows of H bf16 elements, for host and device.
#ifndef PERIGEE_KERNELS_ALGO_ROWS_H_
#define PERIGEE_KERNELS_ALGO_ROWS_H_

#include <cstdint>
#include <cstring>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"

namespace perigee {

PERIGEE_HOST_DEVICE inline BFloat16* RowAt(BFloat16* rows, int64_t row, int32_t hidden) {
  return rows + row * hidden;
}
PERIGEE_HOST_DEVICE inline const BFloat16* RowAt(const BFloat16* rows, int64_t row,
                                                 int32_t hidden) {
  return rows + row * hidden;
}

// `to` and `from` do not overlap.
PERIGEE_HOST_DEVICE inline void CopyRow(BFloat16* to, const BFloat16* from, int32_t hidden) {
  memcpy(to, from, static_cast<size_t>(hidden) * sizeof(BFloat16));
}

// Bits of +0.
PERIGEE_HOST_DEVICE inline void ZeroRows(BFloat16* rows, int64_t count, int32_t hidden) {
  memset(static_cast<void*>(rows), 0, static_cast<size_t>(count) * hidden * sizeof(BFloat16));
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_ALGO_ROWS_H_
