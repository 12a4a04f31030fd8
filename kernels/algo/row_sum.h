// The sum of bf16 rows in a fixed order, for host and device: what combine does with the rows of
// one token. Every backend uses it, so all round alike.
#ifndef PERIGEE_KERNELS_ALGO_ROW_SUM_H_
#define PERIGEE_KERNELS_ALGO_ROW_SUM_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"

namespace perigee {

// What a sum that is no number comes out as. Processors differ in the payload that an addition
// gives a NaN, so a sum has one of its own.
inline constexpr BFloat16 kNanSum{0x7fc0};

// fp32 sums of kWidth neighbouring columns. Start takes the first row as it is instead of adding it
// to zero, so that a single row comes out with its own bits (-0 stays -0, a NaN keeps its payload).
template <int kWidth>
struct RowAccumulator {
  float sums[kWidth];
  bool is_sum = false;

  PERIGEE_HOST_DEVICE void Start(const BFloat16* columns) {
    for (int i = 0; i < kWidth; ++i) sums[i] = ToFloat(columns[i]);
  }
  PERIGEE_HOST_DEVICE void Add(const BFloat16* columns) {
    is_sum = true;
    for (int i = 0; i < kWidth; ++i) sums[i] += ToFloat(columns[i]);
  }
  // Rounds once.
  PERIGEE_HOST_DEVICE void Store(BFloat16* columns) const {
    for (int i = 0; i < kWidth; ++i) {
      columns[i] = is_sum && sums[i] != sums[i] ? kNanSum : ToBFloat16(sums[i]);
    }
  }
};

// Columns [begin, begin + kWidth) of: out = rows[0] + rows[1] + ... in this order. count >= 1; out
// may be one of the rows.
template <int kWidth>
PERIGEE_HOST_DEVICE void SumColumns(const BFloat16* const* rows, int32_t count, int64_t begin,
                                    BFloat16* out) {
  RowAccumulator<kWidth> sum;
  sum.Start(rows[0] + begin);
  for (int32_t i = 1; i < count; ++i) sum.Add(rows[i] + begin);
  sum.Store(out + begin);
}

// All H columns, H a multiple of 8.
PERIGEE_HOST_DEVICE inline void SumRows(const BFloat16* const* rows, int32_t count, int32_t hidden,
                                        BFloat16* out) {
  constexpr int kWide = 64;
  int32_t begin = 0;
  for (; begin + kWide <= hidden; begin += kWide) SumColumns<kWide>(rows, count, begin, out);
  for (; begin < hidden; begin += 8) SumColumns<8>(rows, count, begin, out);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_ALGO_ROW_SUM_H_
