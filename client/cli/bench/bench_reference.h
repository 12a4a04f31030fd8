// What combine must return for rows that no expert has touched, computed slowly and for itself.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_REFERENCE_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/common/bfloat16.h"

namespace perigee {

// The combined row of one token: its row once for each route that is not masked. On every rank the
// duplicates are added to the primary in fp32 and rounded, then the ranks' rows are added in the
// order of their first route and rounded. row: [H]; dst: [K], encoded (kernels/plan/destination.h).
std::vector<BFloat16> CombinedRow(absl::Span<const BFloat16> row, absl::Span<const int32_t> dst,
                                  int64_t logical_rows);

// Elements of the first tokens of `output` [S, H] whose bits differ from CombinedRow. hidden: the
// same tokens' rows [n, H]; dst: at least [n, K].
int64_t CountMismatches(absl::Span<const BFloat16> hidden, absl::Span<const int32_t> dst,
                        absl::Span<const BFloat16> output, int32_t row_elements, int32_t topk,
                        int64_t logical_rows);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_REFERENCE_H_
