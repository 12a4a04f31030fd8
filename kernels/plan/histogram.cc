#include "kernels/plan/histogram.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernels/plan/validate.h"

namespace perigee {

absl::optional<BadRoute> FindBadRoute(const Geometry& geometry,
                                      absl::Span<const int32_t> topk_experts, int32_t token_count) {
  const size_t routes = static_cast<size_t>(token_count) * geometry.topk;
  for (size_t i = 0; i < routes; ++i) {
    const int32_t value = topk_experts[i];
    if (value >= kMaskedExpert && value < geometry.experts) continue;
    return BadRoute{static_cast<int32_t>(i / geometry.topk),
                    static_cast<int32_t>(i % geometry.topk), value};
  }
  return absl::nullopt;
}

absl::Status BadRouteError(RankId rank, const BadRoute& route, int32_t experts) {
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank.value, " token ", route.token, " k ",
                                                 route.k, ": expert id ", route.value,
                                                 ", expected -1 (masked) to ", experts - 1));
}

absl::StatusOr<std::vector<int32_t>> CountRoutes(const Geometry& geometry, RankId rank,
                                                 absl::Span<const int32_t> topk_experts,
                                                 int32_t token_count) {
  if (absl::Status status = ValidateTokenCount(geometry, rank, token_count); !status.ok()) {
    return status;
  }
  if (topk_experts.size() != static_cast<size_t>(geometry.routes())) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank.value, " has ",
                                                   topk_experts.size(), " routes, expected ",
                                                   geometry.tokens, " tokens * ", geometry.topk));
  }
  std::vector<int32_t> counts(geometry.experts, 0);
  for (int32_t value : topk_experts.first(static_cast<size_t>(token_count) * geometry.topk)) {
    if (value >= 0 && value < geometry.experts) {
      ++counts[value];
    } else if (value != kMaskedExpert) {
      return BadRouteError(rank, *FindBadRoute(geometry, topk_experts, token_count),
                           geometry.experts);
    }
  }
  return counts;
}

}  // namespace perigee
