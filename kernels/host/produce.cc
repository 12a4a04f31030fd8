#include "kernels/host/produce.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "kernels/algo/rows.h"
#include "kernels/host/matrix_product.h"
#include "kernels/host/publish.h"
#include "kernels/plan/destination.h"
#include "kernels/rank/producer_checks.h"

namespace perigee {
namespace {

// Rows that share each load of a panel of b.
constexpr int32_t kProducedRows = 48;

using Floats = std::unique_ptr<float[]>;

Floats Scratch(int64_t rows, int64_t columns) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(rows * columns));
}

// out [count, H], rows [first, first + count) of the product.
void MultiplyRows(const ProductInput& input, int32_t hidden, int64_t first, int32_t count,
                  BFloat16* out) {
  const Floats rows = Scratch(count, input.depth);
  const Floats panel = Scratch(input.depth, kPanelColumns);
  const Floats sums = Scratch(count, kPanelColumns);
  const BFloat16* from = input.a + first * input.depth;
  for (int64_t i = 0; i < int64_t{count} * input.depth; ++i) rows[i] = ToFloat(from[i]);
  for (int32_t column = 0; column < hidden; column += kPanelColumns) {
    PackPanel(input.b, input.depth, hidden, column, panel.get());
    MultiplyPanel(rows.get(), count, input.depth, panel.get(), sums.get());
    const int32_t width = std::min(kPanelColumns, hidden - column);
    for (int32_t row = 0; row < count; ++row) {
      BFloat16* to = RowAt(out, row, hidden) + column;
      const float* sum = sums.get() + row * kPanelColumns;
      for (int32_t j = 0; j < width; ++j) to[j] = ToBFloat16(sum[j]);
    }
  }
}

// Calls part(first row, count) for parts of the product, on the rank's threads.
template <typename Part>
absl::Status ForParts(HostRank& rank, int32_t token_count, const Part& part) {
  const int64_t parts = (token_count + kProducedRows - 1) / kProducedRows;
  rank.pool->ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rank.collective->aborted()) return;
      const int64_t first = i * kProducedRows;
      part(first, static_cast<int32_t>(std::min<int64_t>(kProducedRows, token_count - first)));
    }
  });
  return rank.collective->CheckNotAborted();
}

void StoreRow(const HostRank& rank, const ProducerView& to, int64_t token, const BFloat16* row) {
  for (int32_t k = 0; k < rank.geometry.topk; ++k) {
    const int32_t dst = to.dst[token * rank.geometry.topk + k];
    if (!IsPrimary(dst)) continue;
    BFloat16* rows = to.rows[RankOf(dst, to.logical_rows)];
    std::memcpy(RowAt(rows, LocalRow(dst, to.logical_rows), rank.hidden), row, rank.row_bytes(1));
  }
}

}  // namespace

absl::Status HostProduce(HostRank& rank, const ProductInput& input, BFloat16* output) {
  absl::Status status = rank.collective->BeginLocal(Operation::kProduce);
  if (!status.ok()) return status;
  if (status = CheckProduce(rank, input, output); !status.ok()) return status;
  return ForParts(rank, input.token_count, [&](int64_t first, int32_t count) {
    MultiplyRows(input, rank.hidden, first, count, RowAt(output, first, rank.hidden));
  });
}

absl::Status HostProduceInto(HostRank& rank, const ProductInput& input, const TargetPtr& target) {
  absl::Status status = rank.collective->BeginLocal(Operation::kProduce);
  if (!status.ok()) return status;
  const absl::StatusOr<TargetFacts> facts = HostTargetFacts(target);
  if (!facts.ok()) return facts.status();
  if (status = CheckProduceInto(rank, input, *facts); !status.ok()) return status;
  const ProducerView& to = target->producer();
  return ForParts(rank, input.token_count, [&](int64_t first, int32_t count) {
    const auto rows =
        std::make_unique_for_overwrite<BFloat16[]>(static_cast<size_t>(count) * rank.hidden);
    MultiplyRows(input, rank.hidden, first, count, rows.get());
    for (int32_t row = 0; row < count; ++row) {
      StoreRow(rank, to, first + row, RowAt(rows.get(), row, rank.hidden));
    }
  });
}

}  // namespace perigee
