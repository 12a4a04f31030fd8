// The duplicate rows of one rank, gathered by token: who copies from whom after a dispatch, who is
// summed into whom before a combine.
#ifndef PERIGEE_KERNELS_PLAN_DUPLICATES_H_
#define PERIGEE_KERNELS_PLAN_DUPLICATES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace perigee {

// One primary row with duplicates: rows [start, start + count) of DuplicateGroups::rows.
struct DuplicateGroup {
  int32_t primary_row = 0;
  int32_t start = 0;
  int32_t count = 0;
  friend constexpr bool operator==(const DuplicateGroup&, const DuplicateGroup&) = default;
};

// Rows are local. Groups ascend by primary row and follow each other in `rows` without gaps; a
// group's rows are in order of k.
struct DuplicateGroups {
  std::vector<DuplicateGroup> groups;
  std::vector<int32_t> rows;
  friend bool operator==(const DuplicateGroups&, const DuplicateGroups&) = default;
};

// Builds the lists of one rank from the two maps that source ranks wrote into its shard, one
// DuplicateLink (destination.h) for every route's row:
//   duplicate_primary [>= used rows]  the primary row, -1 where the row is one itself
//   duplicate_ordinal [>= used rows]  1-based place among the token's duplicates, 0 for a primary
// cu_seqlens [G] and zero_fill_ranges [G, 2] are the rank's own (placement.h): padding rows and
// rows past the last group are skipped, whatever the maps hold there. Reads the maps twice and
// trusts neither reading: INTERNAL, naming the row, if what peers wrote is no set of such lists.
absl::StatusOr<DuplicateGroups> BuildDuplicateGroups(absl::Span<const int32_t> cu_seqlens,
                                                     absl::Span<const int32_t> zero_fill_ranges,
                                                     absl::Span<const int32_t> duplicate_primary,
                                                     absl::Span<const uint8_t> duplicate_ordinal);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_DUPLICATES_H_
