#include "worker/ops/plan_summary.h"

#include "kernels/plan/destination.h"

namespace perigee {

v1::PlanSummary SummarisePlan(const PlanTensors& plan, const Geometry& geometry, RankId rank,
                              int32_t token_count) {
  int64_t primaries_sent = 0;
  int64_t primaries_kept = 0;
  for (const int32_t dst : plan.dst) {
    if (!IsPrimary(dst)) continue;
    const int32_t to = RankOf(dst, static_cast<int32_t>(geometry.logical_rows()));
    ++(to == rank.value ? primaries_kept : primaries_sent);
  }
  const int64_t load = plan.load[rank.value];
  const int64_t duplicates = static_cast<int64_t>(plan.duplicate_rows.size());
  v1::PlanSummary summary;
  summary.set_home_load(plan.home_load[rank.value]);
  summary.set_balanced_load(load);
  summary.set_replicas(plan.remote_stats[0]);
  summary.set_replicated(plan.remote_stats[1]);
  summary.set_rows_sent(primaries_sent);
  // Every row here is a duplicate, a primary of this rank, or one that was received.
  summary.set_rows_received(load - duplicates - primaries_kept);
  summary.set_duplicate_rows(duplicates);
  summary.set_token_count(token_count);
  return summary;
}

}  // namespace perigee
