#include "kernels/host/expert_rows.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "kernels/algo/swiglu.h"
#include "kernels/host/matrix_product.h"

namespace perigee {
namespace {

using Floats = std::unique_ptr<float[]>;

Floats Scratch(int64_t rows, int64_t columns) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(rows * columns));
}

void ConvertRows(const BFloat16* rows, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) out[i] = ToFloat(rows[i]);
}

// h [count, H'] as fp32 values that have been rounded to bf16.
void ComputeHidden(const WeightsShape& shape, const ExpertMatrices& matrices, const float* rows,
                   int32_t count, float* panel, float* h) {
  float gate[kExpertRows * kPanelColumns];
  float up[kExpertRows * kPanelColumns];
  for (int32_t column = 0; column < shape.intermediate; column += kPanelColumns) {
    PackPanel(matrices.gate, shape.hidden, shape.intermediate, column, panel);
    MultiplyPanel(rows, count, shape.hidden, panel, gate);
    PackPanel(matrices.up, shape.hidden, shape.intermediate, column, panel);
    MultiplyPanel(rows, count, shape.hidden, panel, up);
    const int32_t width = std::min(kPanelColumns, shape.intermediate - column);
    for (int32_t row = 0; row < count; ++row) {
      float* out = h + static_cast<int64_t>(row) * shape.intermediate + column;
      for (int32_t j = 0; j < width; ++j) {
        const int32_t i = row * kPanelColumns + j;
        out[j] = ToFloat(SwiGlu(gate[i], up[i]));
      }
    }
  }
}

void ComputeOutput(const WeightsShape& shape, const ExpertMatrices& matrices, const float* h,
                   float* panel, const ExpertRows& work) {
  float down[kExpertRows * kPanelColumns];
  for (int32_t column = 0; column < shape.hidden; column += kPanelColumns) {
    PackPanel(matrices.down, shape.intermediate, shape.hidden, column, panel);
    MultiplyPanel(h, work.count, shape.intermediate, panel, down);
    const int32_t width = std::min(kPanelColumns, shape.hidden - column);
    for (int32_t row = 0; row < work.count; ++row) {
      BFloat16* out = work.output + static_cast<int64_t>(row) * shape.hidden + column;
      const float* sums = down + row * kPanelColumns;

      if (work.row_weights == nullptr) {
        for (int32_t j = 0; j < width; ++j) out[j] = ToBFloat16(sums[j]);
      } else {
        for (int32_t j = 0; j < width; ++j) out[j] = ToBFloat16(sums[j] * work.row_weights[row]);
      }
    }
  }
}

}  // namespace

void RunExpertRows(const WeightsShape& shape, const ExpertMatrices& matrices,
                   const ExpertRows& work) {
  const Floats rows = Scratch(work.count, shape.hidden);
  const Floats h = Scratch(work.count, shape.intermediate);
  const Floats panel = Scratch(std::max(shape.hidden, shape.intermediate), kPanelColumns);
  // All of them are read before the first output is written: the output may be the rows.
  ConvertRows(work.rows, static_cast<int64_t>(work.count) * shape.hidden, rows.get());
  ComputeHidden(shape, matrices, rows.get(), work.count, panel.get(), h.get());
  ComputeOutput(shape, matrices, h.get(), panel.get(), work);
}

}  // namespace perigee
