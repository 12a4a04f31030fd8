#include "kernels/host/local_rows.h"

#include <algorithm>
#include <vector>

#include "kernels/algo/rows.h"
#include "kernels/host/sum_rows.h"

namespace perigee {
namespace {

constexpr int64_t kRowGrain = 64;

}  // namespace

void ZeroPadding(const HostRank& rank, absl::Span<const int32_t> ranges) {
  const ShardView& own = rank.own();
  for (size_t group = 0; group < ranges.size() / 2; ++group) {
    const int32_t first = ranges[2 * group];
    const int32_t count = ranges[2 * group + 1];
    if (count == 0) continue;
    ZeroRows(RowAt(own.rows, first, rank.hidden), count, rank.hidden);
    std::fill_n(own.row_weights + first, count, 0.0f);
  }
}

void ExpandDuplicates(const HostRank& rank, const DuplicateGroups& duplicates) {
  BFloat16* const rows = rank.own().rows;
  const auto expand = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const DuplicateGroup& group = duplicates.groups[i];
      const BFloat16* primary = RowAt(rows, group.primary_row, rank.hidden);
      for (int32_t j = group.start; j < group.start + group.count; ++j) {
        CopyRow(RowAt(rows, duplicates.rows[j], rank.hidden), primary, rank.hidden);
      }
    }
  };
  rank.pool->ParallelFor(static_cast<int64_t>(duplicates.groups.size()), kRowGrain, expand);
}

void SumDuplicates(const HostRank& rank, const DuplicateGroups& duplicates) {
  BFloat16* const rows = rank.own().rows;
  const auto sum = [&](int64_t begin, int64_t end) {
    std::vector<const BFloat16*> terms;
    for (int64_t i = begin; i < end; ++i) {
      const DuplicateGroup& group = duplicates.groups[i];
      BFloat16* const primary = RowAt(rows, group.primary_row, rank.hidden);
      terms.assign(1, primary);
      for (int32_t j = group.start; j < group.start + group.count; ++j) {
        terms.push_back(RowAt(rows, duplicates.rows[j], rank.hidden));
      }
      HostSumRows(terms.data(), static_cast<int32_t>(terms.size()), rank.hidden, primary);
    }
  };
  rank.pool->ParallelFor(static_cast<int64_t>(duplicates.groups.size()), kRowGrain, sum);
}

void CopyRows(const HostRank& rank, BFloat16* to, const BFloat16* from, int64_t rows) {
  rank.pool->ParallelFor(rows, kRowGrain, [&](int64_t begin, int64_t end) {
    std::copy(RowAt(from, begin, rank.hidden), RowAt(from, end, rank.hidden),
              RowAt(to, begin, rank.hidden));
  });
}

}  // namespace perigee
