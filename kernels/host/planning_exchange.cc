#include "kernels/host/planning_exchange.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/common/shared_words.h"

namespace perigee {
namespace {

int32_t* HistogramOf(const HostRank& rank, int32_t source, Sequence sequence) {
  return rank.shards[source].histograms +
         static_cast<size_t>(sequence.value & 1) * rank.geometry.experts;
}

absl::Status CheckHistogram(const HostRank& rank, int32_t source, const PlanningHeader& header,
                            absl::Span<const int32_t> counts) {
  if (header.token_count < 0 || header.token_count > rank.geometry.tokens) {
    return absl::InternalError(absl::StrCat("rank ", source, " published ", header.token_count,
                                            " tokens, expected 0 to ", rank.geometry.tokens,
                                            ": its shard is damaged"));
  }
  int64_t total = 0;
  for (int32_t count : counts) {
    if (count < 0) total = INT64_MAX / 2;
    total += std::max(count, 0);
  }
  const int64_t limit = static_cast<int64_t>(header.token_count) * rank.geometry.topk;
  if (total <= limit) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("rank ", source,
                                          " published a histogram that is none of ", limit,
                                          " routes: its shard is damaged"));
}

}  // namespace

OwnRoutes ReadRoutes(const HostRank& rank, const int32_t* topk_experts, int32_t token_count) {
  OwnRoutes routes;
  routes.token_count = token_count;
  routes.topk_experts.assign(rank.geometry.routes(), kMaskedExpert);
  std::copy_n(topk_experts, static_cast<size_t>(token_count) * rank.geometry.topk,
              routes.topk_experts.begin());
  routes.bad_route = FindBadRoute(rank.geometry, routes.topk_experts, token_count);
  if (routes.bad_route) {
    routes.counts.assign(rank.geometry.experts, 0);
    return routes;
  }
  absl::StatusOr<std::vector<int32_t>> counts =
      CountRoutes(rank.geometry, rank.rank, routes.topk_experts, token_count);
  PERIGEE_CHECK(counts.ok());
  routes.counts = *std::move(counts);
  return routes;
}

void PublishRoutes(const HostRank& rank, Sequence sequence, const OwnRoutes& routes) {
  PlanningHeader header;
  header.token_count = routes.token_count;
  if (routes.bad_route) {
    header.bad_token = routes.bad_route->token;
    header.bad_k = routes.bad_route->k;
    header.bad_value = routes.bad_route->value;
  }
  StoreShared(rank.own().planning[sequence.value & 1], header);
  std::copy(routes.counts.begin(), routes.counts.end(),
            HistogramOf(rank, rank.rank.value, sequence));
}

absl::StatusOr<std::vector<int32_t>> CollectCounts(const HostRank& rank, Sequence sequence,
                                                   const OwnRoutes& routes) {
  const size_t experts = rank.geometry.experts;
  std::vector<int32_t> counts(rank.shards.size() * experts);
  for (size_t source = 0; source < rank.shards.size(); ++source) {
    const absl::Span<int32_t> row = absl::MakeSpan(counts).subspan(source * experts, experts);
    if (source == static_cast<size_t>(rank.rank.value)) {
      std::copy(routes.counts.begin(), routes.counts.end(), row.begin());
      continue;
    }
    const int32_t id = static_cast<int32_t>(source);
    const PlanningHeader header = LoadShared(rank.shards[source].planning[sequence.value & 1]);
    // Copied out first: what is checked is what the plan is made of.
    std::memcpy(row.data(), HistogramOf(rank, id, sequence), experts * sizeof(int32_t));
    if (absl::Status status = CheckHistogram(rank, id, header, row); !status.ok()) return status;
  }
  return counts;
}

}  // namespace perigee
