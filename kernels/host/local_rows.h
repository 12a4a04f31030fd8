// The steps of dispatch and combine that a rank does alone, inside its own shard.
#ifndef PERIGEE_KERNELS_HOST_LOCAL_ROWS_H_
#define PERIGEE_KERNELS_HOST_LOCAL_ROWS_H_

#include "kernels/host/host_plan.h"
#include "kernels/host/host_rank.h"

namespace perigee {

// Padding rows and their weights become zero. ranges [E + B, 2]: first row, count.
void ZeroPadding(const HostRank& rank, absl::Span<const int32_t> ranges);

// Copies each primary row that has duplicates to all of them.
void ExpandDuplicates(const HostRank& rank, const DuplicateGroups& duplicates);

// Sums each primary row's duplicates into it: in fp32, in order of k (a primary is its token's
// first route here), rounded once. Primaries without duplicates keep their bits.
void SumDuplicates(const HostRank& rank, const DuplicateGroups& duplicates);

// [0, rows) of H elements, shared among the rank's threads; `to` and `from` do not overlap.
void CopyRows(const HostRank& rank, BFloat16* to, const BFloat16* from, int64_t rows);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_LOCAL_ROWS_H_
