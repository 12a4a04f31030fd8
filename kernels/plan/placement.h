// The part of a plan that is equal on all ranks: how many of each expert's routes every rank takes,
// and where in that rank's shard they lie. A pure function of the ranks' histograms, in integer
// arithmetic: every rank computes it alone and gets the same.
#ifndef PERIGEE_KERNELS_PLAN_PLACEMENT_H_
#define PERIGEE_KERNELS_PLAN_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"

namespace perigee {

// Groups of a rank are numbered [0, E + B): the E global experts by id, then the B slots. Rows are
// local to the rank's shard.
struct Placement {
  Geometry geometry;
  std::vector<int32_t> alloc;             // [E, R] routes of expert e that rank d computes
  std::vector<int32_t> load;              // [R] rows with a route, without padding
  std::vector<int32_t> transfers;         // [R, R] routes that home rank h gives to rank d
  std::vector<int32_t> experts_to_copy;   // [R, B] expert in a slot, -1 = empty
  std::vector<int32_t> cu_seqlens;        // [R, E + B] padded inclusive end of each group
  std::vector<int32_t> zero_fill_ranges;  // [R, E + B, 2] first padding row, rows; (0, 0) if none
  std::vector<int32_t> remote_stats;      // [R, 2] remote experts with rows here; own experts in
                                          // slots anywhere
  std::vector<int32_t> group_of;          // [R, E] group that holds e's rows here, -1 = no rows
  std::vector<int32_t> group_start;       // [R, E] first row of that group, 0 where there is none

  int32_t alloc_at(ExpertId expert, RankId rank) const {
    return alloc[Index(expert.value, geometry.ranks, rank.value)];
  }
  int32_t transfer_at(RankId from, RankId to) const {
    return transfers[Index(from.value, geometry.ranks, to.value)];
  }
  int32_t group_at(RankId rank, ExpertId expert) const {
    return group_of[Index(rank.value, geometry.experts, expert.value)];
  }
  int32_t group_start_at(RankId rank, ExpertId expert) const {
    return group_start[Index(rank.value, geometry.experts, expert.value)];
  }
  absl::Span<const int32_t> cu_seqlens_of(RankId rank) const {  // [E + B]
    return Row(cu_seqlens, rank, geometry.groups());
  }
  absl::Span<const int32_t> zero_fill_of(RankId rank) const {  // [E + B, 2]
    return Row(zero_fill_ranges, rank, 2 * geometry.groups());
  }
  absl::Span<const int32_t> experts_to_copy_of(RankId rank) const {  // [B]
    return Row(experts_to_copy, rank, geometry.slots);
  }
  // Rows up to the last group's end, padding included. Those past it are undefined.
  int32_t used_rows(RankId rank) const { return cu_seqlens_of(rank).back(); }

 private:
  static size_t Index(int32_t row, int32_t columns, int32_t column) {
    return static_cast<size_t>(row) * columns + column;
  }
  static absl::Span<const int32_t> Row(const std::vector<int32_t>& matrix, RankId rank,
                                       int32_t columns) {
    return absl::MakeConstSpan(matrix).subspan(Index(rank.value, columns, 0), columns);
  }
};

// counts [R, E]: every rank's CountRoutes. The geometry has been accepted (validate.h) and each
// rank's counts sum to at most S * K.
Placement Place(const Geometry& geometry, absl::Span<const int32_t> counts);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_PLACEMENT_H_
