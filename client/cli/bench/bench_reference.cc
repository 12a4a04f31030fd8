#include "client/cli/bench/bench_reference.h"

#include <algorithm>
#include <cstddef>

#include "kernels/plan/destination.h"

namespace perigee {
namespace {

struct RankRows {
  int64_t rank = 0;
  int32_t count = 0;
};

// The ranks that hold rows of a token, in the order of their first route.
std::vector<RankRows> RowsByRank(absl::Span<const int32_t> dst, int64_t logical_rows) {
  std::vector<RankRows> ranks;
  for (int32_t route : dst) {
    if (IsMasked(route)) continue;
    const int64_t rank = DecodeRow(route) / logical_rows;
    const auto known = std::find_if(ranks.begin(), ranks.end(),
                                    [&](const RankRows& rows) { return rows.rank == rank; });
    if (known == ranks.end()) {
      ranks.push_back({rank, 1});
    } else {
      ++known->count;
    }
  }
  return ranks;
}

}  // namespace

std::vector<BFloat16> CombinedRow(absl::Span<const BFloat16> row, absl::Span<const int32_t> dst,
                                  int64_t logical_rows) {
  const std::vector<RankRows> ranks = RowsByRank(dst, logical_rows);
  std::vector<BFloat16> combined(row.size());
  for (size_t h = 0; h < row.size(); ++h) {
    const float value = ToFloat(row[h]);
    float sum = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
      float of_rank = value;
      for (int32_t n = 1; n < ranks[i].count; ++n) of_rank += value;
      const float rounded = ToFloat(ToBFloat16(of_rank));
      sum = i == 0 ? rounded : sum + rounded;
    }
    combined[h] = ToBFloat16(sum);
  }
  return combined;
}

int64_t CountMismatches(absl::Span<const BFloat16> hidden, absl::Span<const int32_t> dst,
                        absl::Span<const BFloat16> output, int32_t row_elements, int32_t topk,
                        int64_t logical_rows) {
  int64_t mismatches = 0;
  const size_t tokens = hidden.size() / row_elements;
  for (size_t token = 0; token < tokens; ++token) {
    const std::vector<BFloat16> expected =
        CombinedRow(hidden.subspan(token * row_elements, row_elements),
                    dst.subspan(token * topk, topk), logical_rows);
    const absl::Span<const BFloat16> actual = output.subspan(token * row_elements, row_elements);
    for (size_t h = 0; h < expected.size(); ++h) mismatches += !(actual[h] == expected[h]);
  }
  return mismatches;
}

}  // namespace perigee
