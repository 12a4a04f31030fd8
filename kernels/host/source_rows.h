// Which tokens of which ranks have rows here: the destinations of all ranks, read the other way
// round.
#ifndef PERIGEE_KERNELS_HOST_SOURCE_ROWS_H_
#define PERIGEE_KERNELS_HOST_SOURCE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/host/dispatch_steps.h"
#include "kernels/host/host_rank.h"
#include "kernels/plan/duplicates.h"

namespace perigee {

// A token with rows here: places [start, start + count), the first of them the primary's.
struct SourcePull {
  int32_t rank = 0;
  int32_t token = 0;
  int32_t start = 0;
  int32_t count = 0;
};

struct SourceRows {
  std::vector<int32_t> origins;   // [NvS] as SourceView has them
  std::vector<SourcePull> pulls;  // by rank and token
  std::vector<int32_t> places;    // rows, those of a token in order of k
};

// Of a plan that all ranks have made, when each has written its destinations into its source shard.
// What peers wrote is copied out before it is checked. INTERNAL, naming the rank, unless it gives
// every row here that has a route one origin, and no other row any.
absl::StatusOr<SourceRows> ReadSourceRows(const HostRank& rank, const Planned& planned);

// The lists of the same plan.
DuplicateGroups DuplicatesOf(const SourceRows& rows);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_SOURCE_ROWS_H_
