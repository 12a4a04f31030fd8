#include "kernels/plan/routes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/plan/destination.h"

namespace perigee {
namespace {

// Where the source rank's next route to one expert goes. Routes of an expert are dealt to the ranks
// in order, alloc of them to each, source ranks ascending.
struct Cursor {
  int32_t rank = 0;
  int32_t next_raw = 0;
  int32_t left_on_rank = 0;
  int32_t left = 0;  // routes that the source has counted and not yet placed
};

class Dealer {
 public:
  Dealer(const Placement& placement, int32_t expert)
      : placement_(placement),
        expert_(expert),
        logical_rows_(static_cast<int32_t>(placement.geometry.logical_rows())) {}

  // The cursor that has dealt `skip` routes already.
  Cursor Start(int32_t skip, int32_t count) const {
    Cursor cursor;
    cursor.left = count;
    if (count == 0) return cursor;
    Enter(cursor);
    while (skip >= cursor.left_on_rank) {
      skip -= cursor.left_on_rank;
      ++cursor.rank;
      Enter(cursor);
    }
    cursor.next_raw += skip;
    cursor.left_on_rank -= skip;
    return cursor;
  }
  int32_t Take(Cursor& cursor) const {
    PERIGEE_CHECK(cursor.left > 0);
    while (cursor.left_on_rank == 0) {
      ++cursor.rank;
      Enter(cursor);
    }
    --cursor.left;
    --cursor.left_on_rank;
    return cursor.next_raw++;
  }

 private:
  void Enter(Cursor& cursor) const {
    PERIGEE_CHECK(cursor.rank < placement_.geometry.ranks);
    cursor.left_on_rank = placement_.alloc_at(ExpertId(expert_), RankId(cursor.rank));
    cursor.next_raw = cursor.rank * logical_rows_ +
                      placement_.group_start_at(RankId(cursor.rank), ExpertId(expert_));
  }

  const Placement& placement_;
  const int32_t expert_;
  const int32_t logical_rows_;
};

std::vector<Cursor> StartCursors(const Placement& placement, RankId source,
                                 absl::Span<const int32_t> counts) {
  const size_t experts = placement.geometry.experts;
  std::vector<Cursor> cursors(experts);
  for (size_t expert = 0; expert < experts; ++expert) {
    int32_t before = 0;
    for (int32_t rank = 0; rank < source.value; ++rank) before += counts[rank * experts + expert];
    cursors[expert] = Dealer(placement, static_cast<int32_t>(expert))
                          .Start(before, counts[source.value * experts + expert]);
  }
  return cursors;
}

}  // namespace

void AssignRoutes(const Placement& placement, RankId source, absl::Span<const int32_t> counts,
                  absl::Span<const int32_t> topk_experts, int32_t token_count,
                  absl::Span<int32_t> dst) {
  const Geometry& geometry = placement.geometry;
  PERIGEE_CHECK(counts.size() == static_cast<size_t>(geometry.ranks) * geometry.experts);
  PERIGEE_CHECK(topk_experts.size() == static_cast<size_t>(geometry.routes()));
  PERIGEE_CHECK(dst.size() == topk_experts.size());
  PERIGEE_CHECK(token_count >= 0 && token_count <= geometry.tokens);
  std::vector<Cursor> cursors = StartCursors(placement, source, counts);
  // last_token[d]: the latest token with a route to rank d.
  std::vector<int32_t> last_token(geometry.ranks, -1);
  const int32_t topk = geometry.topk;
  for (int32_t token = 0; token < token_count; ++token) {
    for (int32_t k = 0; k < topk; ++k) {
      const size_t i = static_cast<size_t>(token) * topk + k;
      const int32_t expert = topk_experts[i];
      if (expert == -1) {
        dst[i] = kMaskedRoute;
        continue;
      }
      PERIGEE_CHECK(expert >= 0 && expert < geometry.experts);
      Cursor& cursor = cursors[expert];
      const int32_t raw = Dealer(placement, expert).Take(cursor);
      const bool first = last_token[cursor.rank] != token;
      last_token[cursor.rank] = token;
      dst[i] = first ? raw : EncodeDuplicate(raw);
    }
  }
  std::fill(dst.begin() + static_cast<size_t>(token_count) * topk, dst.end(), kMaskedRoute);
}

}  // namespace perigee
