#include "kernels/host/sum_rows.h"

#include "kernels/algo/row_sum.h"

namespace perigee {
namespace {

using SumFunction = void (*)(const BFloat16* const*, int32_t, int32_t, BFloat16*);

__attribute__((flatten)) void SumPlain(const BFloat16* const* rows, int32_t count, int32_t hidden,
                                       BFloat16* out) {
  SumRows(rows, count, hidden, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void SumAvx2(const BFloat16* const* rows, int32_t count,
                                                      int32_t hidden, BFloat16* out) {
  SumRows(rows, count, hidden, out);
}

SumFunction Choose() { return __builtin_cpu_supports("avx2") ? SumAvx2 : SumPlain; }
#else
SumFunction Choose() { return SumPlain; }
#endif

}  // namespace

void HostSumRows(const BFloat16* const* rows, int32_t count, int32_t hidden, BFloat16* out) {
  static const SumFunction sum = Choose();
  sum(rows, count, hidden, out);
}

}  // namespace perigee
