#include "client/cli/bench/bench_bytes.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace perigee {
namespace {

constexpr double kBytesPerUsOfGb = 1000;  // 1 GB/s is 1000 bytes a microsecond
constexpr int64_t kCopyTouches = 2;       // a copied byte is read and written

double Rate(int64_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us / kBytesPerUsOfGb : 0;
}

double Microseconds(int64_t bytes, double gb_per_second) {
  return gb_per_second > 0 ? static_cast<double>(bytes) / gb_per_second / kBytesPerUsOfGb : 0;
}

ElementCosts Costs(const GroupPlan& plan, int64_t row_bytes, bool route_weights) {
  return ElementCosts{row_bytes, route_weights, plan.geometry().topk};
}

// [R]
std::vector<Traffic> DispatchOfRanks(const GroupPlan& plan, int64_t row_bytes) {
  const ElementCosts costs = Costs(plan, row_bytes, /*route_weights=*/true);
  std::vector<Traffic> ranks;
  for (const RowCounts& rows : CountRows(plan)) ranks.push_back(DispatchTraffic(rows, costs));
  return ranks;
}

std::vector<Traffic> CombineOfRanks(const GroupPlan& plan, int64_t row_bytes) {
  const ElementCosts costs = Costs(plan, row_bytes, /*route_weights=*/false);
  std::vector<Traffic> ranks;
  for (const RowCounts& rows : CountRows(plan)) {
    ranks.push_back(LocalSumTraffic(rows, costs));
    ranks.back() += CombineTraffic(rows, costs);
  }
  return ranks;
}

}  // namespace

MovedBytes Moved(absl::Span<const Traffic> ranks) {
  MovedBytes moved;
  for (const Traffic& rank : ranks) {
    const int64_t local = rank.read_bytes + rank.written_bytes;
    // What crosses a link is in one rank's count as sent and in another's as received; either way
    // it is one access to the other's memory.
    moved.total_bytes += local + rank.received_bytes;
    moved.max_local_bytes = std::max(moved.max_local_bytes, local);
    moved.max_link_bytes = std::max({moved.max_link_bytes, rank.sent_bytes, rank.received_bytes});
  }
  return moved;
}

MovedBytes DispatchBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved(DispatchOfRanks(plan, row_bytes));
}

MovedBytes CombineBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved(CombineOfRanks(plan, row_bytes));
}

MovedBytes StepBytes(const GroupPlan& plan, int64_t row_bytes) {
  std::vector<Traffic> ranks = DispatchOfRanks(plan, row_bytes);
  const std::vector<Traffic> combine = CombineOfRanks(plan, row_bytes);
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] += combine[rank];
  return Moved(ranks);
}

MovedBytes PrefetchBytes(const GroupPlan& plan, int64_t expert_bytes) {
  return Moved(PrefetchTraffic(plan.placement, expert_bytes));
}

MovedBytes DispatchAndPrefetchBytes(const GroupPlan& plan, int64_t row_bytes,
                                    int64_t expert_bytes) {
  std::vector<Traffic> ranks = DispatchOfRanks(plan, row_bytes);
  const std::vector<Traffic> prefetch = PrefetchTraffic(plan.placement, expert_bytes);
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] += prefetch[rank];
  return Moved(ranks);
}

MovedBytes ReduceBytes(const GroupPlan& plan, int64_t expert_bytes) {
  return Moved(ReduceTraffic(plan.placement, expert_bytes));
}

double CopyGbPerSecond(const CopyTimes& copy, RankMemory memory, int32_t ranks) {
  const int64_t copies = memory == RankMemory::kOneForAll ? ranks : 1;
  return Rate(kCopyTouches * copies * copy.rank_bytes, copy.own_us);
}

double LinkGbPerSecond(const CopyTimes& copy) { return Rate(copy.rank_bytes, copy.link_us); }

Floor FloorOf(const MovedBytes& bytes, const CopyTimes& copy, RankMemory memory, int32_t ranks) {
  const double copy_rate = CopyGbPerSecond(copy, memory, ranks);
  if (memory == RankMemory::kOneForAll) {
    return Floor{Microseconds(bytes.total_bytes, copy_rate), "memory"};
  }
  const double local_us = Microseconds(bytes.max_local_bytes, copy_rate);
  const double link_us = Microseconds(bytes.max_link_bytes, LinkGbPerSecond(copy));
  return link_us > local_us ? Floor{link_us, "link"} : Floor{local_us, "local"};
}

}  // namespace perigee
