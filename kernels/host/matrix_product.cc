#include "kernels/host/matrix_product.h"

#include <algorithm>
#include <cstring>

namespace perigee {
namespace {

// Vector registers of SSE2 or NEON, and of AVX2.
typedef float Vector4 __attribute__((vector_size(16)));
typedef float Vector8 __attribute__((vector_size(32)));

#define PERIGEE_INLINE inline __attribute__((always_inline))

template <typename Vector, int kRows>
PERIGEE_INLINE void MultiplyBlock(const float* rows, int32_t depth, const float* panel,
                                  float* out) {
  constexpr int kWidth = sizeof(Vector) / sizeof(float);
  constexpr int kVectors = kPanelColumns / kWidth;
  Vector sums[kRows][kVectors] = {};
  for (int32_t i = 0; i < depth; ++i) {
    Vector columns[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(&columns[v], panel + i * kPanelColumns + v * kWidth, sizeof(Vector));
    }
    for (int r = 0; r < kRows; ++r) {
      const float element = rows[static_cast<int64_t>(r) * depth + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += element * columns[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      std::memcpy(out + r * kPanelColumns + v * kWidth, &sums[r][v], sizeof(Vector));
    }
  }
}

// kRows rows share each load of the panel: their sums, the panel's vectors and one element of a row
// must fit into the 16 vector registers.
template <typename Vector, int kRows>
PERIGEE_INLINE void MultiplyRows(const float* rows, int32_t row_count, int32_t depth,
                                 const float* panel, float* out) {
  int32_t row = 0;
  for (; row + kRows <= row_count; row += kRows) {
    MultiplyBlock<Vector, kRows>(rows + static_cast<int64_t>(row) * depth, depth, panel,
                                 out + row * kPanelColumns);
  }
  for (; row < row_count; ++row) {
    MultiplyBlock<Vector, 1>(rows + static_cast<int64_t>(row) * depth, depth, panel,
                             out + row * kPanelColumns);
  }
}

using MultiplyFunction = void (*)(const float*, int32_t, int32_t, const float*, float*);

void MultiplyPlain(const float* rows, int32_t row_count, int32_t depth, const float* panel,
                   float* out) {
  MultiplyRows<Vector4, 3>(rows, row_count, depth, panel, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const float* rows, int32_t row_count,
                                                      int32_t depth, const float* panel,
                                                      float* out) {
  MultiplyRows<Vector8, 6>(rows, row_count, depth, panel, out);
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
