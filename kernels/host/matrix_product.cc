#include "kernels/host/matrix_product.h"

#include <algorithm>
#include <cstring>

namespace perigee {
namespace {

// Eight floats; where the CPU has no such register the compiler uses narrower ones.
typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int kVectorColumns = 8;
constexpr int kVectors = kPanelColumns / kVectorColumns;

// Rows that share each load of the panel: 6 * 2 sums, 2 panel vectors and 1 element of a row fill
// the 16 vector registers of AVX2.
constexpr int kBlockRows = 6;

#define PERIGEE_INLINE inline __attribute__((always_inline))

template <int kRows>
PERIGEE_INLINE void MultiplyBlock(const float* rows, int32_t depth, const float* panel,
                                  float* out) {
  Vector sums[kRows][kVectors] = {};
  for (int32_t i = 0; i < depth; ++i) {
    const Vector* columns = reinterpret_cast<const Vector*>(panel + i * kPanelColumns);
    for (int r = 0; r < kRows; ++r) {
      const float element = rows[static_cast<int64_t>(r) * depth + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += element * columns[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(out + r * kPanelColumns + v * kVectorColumns, &sums[r][v], sizeof(Vector));
    }
  }
}

PERIGEE_INLINE void MultiplyRows(const float* rows, int32_t row_count, int32_t depth,
                                 const float* panel, float* out) {
  int32_t row = 0;
  for (; row + kBlockRows <= row_count; row += kBlockRows) {
    MultiplyBlock<kBlockRows>(rows + static_cast<int64_t>(row) * depth, depth, panel,
                              out + row * kPanelColumns);
  }
  for (; row < row_count; ++row) {
    MultiplyBlock<1>(rows + static_cast<int64_t>(row) * depth, depth, panel,
                     out + row * kPanelColumns);
  }
}

using MultiplyFunction = void (*)(const float*, int32_t, int32_t, const float*, float*);

void MultiplyPlain(const float* rows, int32_t row_count, int32_t depth, const float* panel,
                   float* out) {
  MultiplyRows(rows, row_count, depth, panel, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const float* rows, int32_t row_count,
                                                      int32_t depth, const float* panel,
                                                      float* out) {
  MultiplyRows(rows, row_count, depth, panel, out);
}

MultiplyFunction Choose() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_avx2 ? MultiplyAvx2 : MultiplyPlain;
}
#else
MultiplyFunction Choose() { return MultiplyPlain; }
#endif

}  // namespace

void PackPanel(const BFloat16* matrix, int32_t depth, int32_t columns, int32_t column,
               float* panel) {
  const int32_t width = std::min(kPanelColumns, columns - column);
  for (int32_t i = 0; i < depth; ++i) {
    const BFloat16* from = matrix + static_cast<int64_t>(i) * columns + column;
    float* to = panel + static_cast<int64_t>(i) * kPanelColumns;
    for (int32_t j = 0; j < width; ++j) to[j] = ToFloat(from[j]);
    std::fill(to + width, to + kPanelColumns, 0.0f);
  }
}

void MultiplyPanel(const float* rows, int32_t row_count, int32_t depth, const float* panel,
                   float* out) {
  static const MultiplyFunction multiply = Choose();
  multiply(rows, row_count, depth, panel, out);
}

}  // namespace perigee
