#include "kernels/plan/split.h"

#include <algorithm>
#include <cstddef>

#include "kernels/common/check.h"

namespace perigee {
namespace {

// transfers [R] and expert_counts [epn] are the donor's own.
void SplitDonor(const Geometry& geometry, int32_t donor, absl::Span<const int32_t> expert_counts,
                absl::Span<const int32_t> transfers, std::vector<int32_t>& alloc) {
  std::vector<int32_t> owed(transfers.begin(), transfers.end());
  std::vector<int32_t> remaining(expert_counts.begin(), expert_counts.end());
  const int32_t first_expert = donor * geometry.experts_per_rank();
  while (true) {
    const auto receiver = std::max_element(owed.begin(), owed.end());
    if (*receiver == 0) return;
    const auto largest = std::max_element(remaining.begin(), remaining.end());
    const int32_t moved = std::min(*largest, *receiver);
    PERIGEE_CHECK(moved > 0);  // a donor never owes more than its experts have
    int32_t* row =
        &alloc[static_cast<size_t>(first_expert + (largest - remaining.begin())) * geometry.ranks];
    row[receiver - owed.begin()] += moved;
    row[donor] -= moved;
    *receiver -= moved;
    *largest -= moved;
  }
}

}  // namespace

std::vector<int32_t> SplitByExpert(const Geometry& geometry,
                                   absl::Span<const int32_t> expert_counts,
                                   absl::Span<const int32_t> transfers) {
  std::vector<int32_t> alloc(static_cast<size_t>(geometry.experts) * geometry.ranks, 0);
  for (int32_t expert = 0; expert < geometry.experts; ++expert) {
    alloc[static_cast<size_t>(expert) * geometry.ranks + geometry.home_rank(expert)] =
        expert_counts[expert];
  }
  const size_t epn = geometry.experts_per_rank();
  for (int32_t donor = 0; donor < geometry.ranks; ++donor) {
    SplitDonor(geometry, donor, expert_counts.subspan(donor * epn, epn),
               transfers.subspan(static_cast<size_t>(donor) * geometry.ranks, geometry.ranks),
               alloc);
  }
  return alloc;
}

}  // namespace perigee
