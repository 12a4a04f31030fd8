#include "kernels/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/histogram.h"
#include "kernels/plan/routes.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

absl::Status CheckShapes(const Geometry& geometry, absl::Span<const int32_t> topk_experts,
                         absl::Span<const int32_t> token_counts) {
  const int64_t routes = int64_t{geometry.ranks} * geometry.routes();
  if (topk_experts.size() != static_cast<size_t>(routes)) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", topk_experts.size(),
                                                   " routes, expected ", geometry.ranks,
                                                   " ranks * ", geometry.routes()));
  }
  if (!token_counts.empty() && token_counts.size() != static_cast<size_t>(geometry.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", token_counts.size(),
                                                   " token counts, expected ", geometry.ranks));
  }
  return absl::OkStatus();
}

// What sources write into the maps of the ranks their rows land on, all ranks' maps in one.
struct DuplicateMaps {
  std::vector<int32_t> primary;  // [R, NvS]
  std::vector<uint8_t> ordinal;  // [R, NvS]
};

DuplicateMaps WriteMaps(const GroupPlan& plan) {
  const Geometry& geometry = plan.geometry();
  const auto logical_rows = static_cast<int32_t>(geometry.logical_rows());
  const size_t rows = static_cast<size_t>(geometry.ranks) * logical_rows;
  DuplicateMaps maps{std::vector<int32_t>(rows, -1), std::vector<uint8_t>(rows, 0)};
  const size_t topk = geometry.topk;
  for (size_t i = 0; i < plan.dst.size(); ++i) {
    if (!IsDuplicate(plan.dst[i])) continue;
    const DuplicateLink link =
        LinkOf(&plan.dst[i / topk * topk], static_cast<int32_t>(i % topk), logical_rows);
    maps.primary[DecodeRow(plan.dst[i])] = link.primary;
    maps.ordinal[DecodeRow(plan.dst[i])] = link.ordinal;
  }
  return maps;
}

void GatherDuplicates(GroupPlan& plan) {
  const DuplicateMaps maps = WriteMaps(plan);
  const size_t logical_rows = plan.geometry().logical_rows();
  for (int32_t rank = 0; rank < plan.geometry().ranks; ++rank) {
    const size_t first = rank * logical_rows;
    absl::StatusOr<DuplicateGroups> groups = BuildDuplicateGroups(
        plan.placement.cu_seqlens_of(RankId(rank)), plan.placement.zero_fill_of(RankId(rank)),
        absl::MakeConstSpan(maps.primary).subspan(first, logical_rows),
        absl::MakeConstSpan(maps.ordinal).subspan(first, logical_rows));
    PERIGEE_CHECK(groups.ok());  // the maps are our own
    plan.duplicates.push_back(*std::move(groups));
  }
}

}  // namespace

absl::StatusOr<GroupPlan> PlanGroup(const Geometry& geometry,
                                    absl::Span<const int32_t> topk_experts,
                                    absl::Span<const int32_t> token_counts) {
  if (absl::Status status = ValidateGeometry(geometry); !status.ok()) return status;
  if (absl::Status status = CheckShapes(geometry, topk_experts, token_counts); !status.ok()) {
    return status;
  }
  const size_t routes = geometry.routes();
  const auto token_count = [&](int32_t rank) {
    return token_counts.empty() ? geometry.tokens : token_counts[rank];
  };
  GroupPlan plan;
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    absl::StatusOr<std::vector<int32_t>> counts = CountRoutes(
        geometry, RankId(rank), topk_experts.subspan(rank * routes, routes), token_count(rank));
    if (!counts.ok()) return counts.status();
    plan.counts.insert(plan.counts.end(), counts->begin(), counts->end());
  }
  plan.placement = Place(geometry, plan.counts);
  plan.dst.resize(geometry.ranks * routes);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    AssignRoutes(plan.placement, RankId(rank), plan.counts,
                 topk_experts.subspan(rank * routes, routes), token_count(rank),
                 absl::MakeSpan(plan.dst).subspan(rank * routes, routes));
  }
  GatherDuplicates(plan);
  return plan;
}

}  // namespace perigee
