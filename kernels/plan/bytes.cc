#include "kernels/plan/bytes.h"

#include <cstddef>

#include "kernels/plan/destination.h"

namespace perigee {
namespace {

constexpr int64_t kWeightBytes = sizeof(float);

// Bytes of `rows` rows and of `weights` route weights.
int64_t Bytes(const ElementCosts& costs, int64_t rows, int64_t weights) {
  return rows * costs.row_bytes + (costs.route_weights ? weights * kWeightBytes : 0);
}

void CountSource(const GroupPlan& plan, int32_t source, std::vector<RowCounts>& counts) {
  const auto logical_rows = static_cast<int32_t>(plan.geometry().logical_rows());
  const absl::Span<const int32_t> dst = plan.dst_of(RankId(source));
  const size_t topk = plan.geometry().topk;
  RowCounts& own = counts[source];
  for (size_t token = 0; token < dst.size(); token += topk) {
    const int64_t routes_before = own.routes;
    for (int32_t route : dst.subspan(token, topk)) {
      if (IsMasked(route)) continue;
      const int32_t rank = RankOf(DecodeRow(route), logical_rows);
      const bool local = rank == source;
      ++own.routes;
      own.routes_sent += !local;
      counts[rank].routes_received += !local;
      if (!IsPrimary(route)) continue;
      own.primaries_local += local;
      own.primaries_sent += !local;
      counts[rank].primaries_received += !local;
    }
    own.source_rows += own.routes > routes_before;
  }
}

}  // namespace

std::vector<RowCounts> CountRows(const GroupPlan& plan) {
  const Geometry& geometry = plan.geometry();
  std::vector<RowCounts> counts(geometry.ranks);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    CountSource(plan, rank, counts);
    RowCounts& own = counts[rank];
    own.tokens = geometry.tokens;
    own.padding_rows = plan.placement.used_rows(RankId(rank)) - int64_t{plan.placement.load[rank]};
    own.duplicated_primaries = static_cast<int64_t>(plan.duplicates[rank].groups.size());
    own.duplicates = static_cast<int64_t>(plan.duplicates[rank].rows.size());
  }
  return counts;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  read_bytes += other.read_bytes;
  written_bytes += other.written_bytes;
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  return *this;
}

Traffic Total(absl::Span<const Traffic> ranks) {
  Traffic total;
  for (const Traffic& rank : ranks) total += rank;
  return total;
}

Traffic DispatchTraffic(const RowCounts& rows, const ElementCosts& costs) {
  Traffic traffic;
  traffic.read_bytes = Bytes(costs, rows.source_rows + rows.duplicated_primaries, rows.routes);
  traffic.written_bytes = Bytes(costs, rows.primaries_local + rows.padding_rows + rows.duplicates,
                                rows.routes - rows.routes_sent + rows.padding_rows);
  traffic.sent_bytes = Bytes(costs, rows.primaries_sent, rows.routes_sent);
  traffic.received_bytes = Bytes(costs, rows.primaries_received, rows.routes_received);
  return traffic;
}

Traffic LocalSumTraffic(const RowCounts& rows, const ElementCosts& costs) {
  Traffic traffic;
  traffic.read_bytes = Bytes(costs, rows.duplicated_primaries + rows.duplicates, 0);
  traffic.written_bytes = Bytes(costs, rows.duplicated_primaries, 0);
  return traffic;
}

Traffic CombineTraffic(const RowCounts& rows, const ElementCosts& costs) {
  Traffic traffic;
  traffic.read_bytes = Bytes(costs, rows.primaries_local, rows.routes - rows.routes_sent);
  traffic.written_bytes = Bytes(costs, rows.tokens, rows.tokens * costs.topk);
  traffic.sent_bytes = Bytes(costs, rows.primaries_received, rows.routes_received);
  traffic.received_bytes = Bytes(costs, rows.primaries_sent, rows.routes_sent);
  return traffic;
}

std::vector<Traffic> PrefetchTraffic(const Placement& placement, int64_t expert_bytes) {
  std::vector<Traffic> ranks(placement.geometry.ranks);
  for (int32_t rank = 0; rank < placement.geometry.ranks; ++rank) {
    for (int32_t expert : placement.experts_to_copy_of(RankId(rank))) {
      if (expert < 0) continue;
      ranks[rank].received_bytes += expert_bytes;
      ranks[rank].written_bytes += expert_bytes;
      ranks[placement.geometry.home_rank(expert)].sent_bytes += expert_bytes;
    }
  }
  return ranks;
}

std::vector<Traffic> ReduceTraffic(const Placement& placement, int64_t expert_bytes) {
  std::vector<Traffic> ranks(placement.geometry.ranks);
  std::vector<bool> is_home_read(placement.geometry.experts);
  for (int32_t rank = 0; rank < placement.geometry.ranks; ++rank) {
    for (int32_t expert : placement.experts_to_copy_of(RankId(rank))) {
      if (expert < 0) continue;
      Traffic& home = ranks[placement.geometry.home_rank(expert)];
      ranks[rank].sent_bytes += expert_bytes;
      ranks[rank].written_bytes += expert_bytes;
      home.received_bytes += expert_bytes;
      if (is_home_read[expert]) continue;
      is_home_read[expert] = true;
      home.read_bytes += expert_bytes;
      home.written_bytes += expert_bytes;
    }
  }
  return ranks;
}

}  // namespace perigee
