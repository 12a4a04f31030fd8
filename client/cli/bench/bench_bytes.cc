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

Movement DispatchMovement(const GroupPlan& plan, int64_t row_bytes) {
  const ElementCosts costs = Costs(plan, row_bytes, /*route_weights=*/true);
  Movement movement{{}, LinkMover::kSender};
  for (const RowCounts& rows : CountRows(plan)) {
    movement.ranks.push_back(DispatchTraffic(rows, costs));
  }
  return movement;
}

Movement CombineMovement(const GroupPlan& plan, int64_t row_bytes) {
  const ElementCosts costs = Costs(plan, row_bytes, /*route_weights=*/false);
  Movement movement{{}, LinkMover::kReceiver};
  for (const RowCounts& rows : CountRows(plan)) {
    movement.ranks.push_back(LocalSumTraffic(rows, costs));
    movement.ranks.back() += CombineTraffic(rows, costs);
  }
  return movement;
}

// Of the rows that the plan uses.
Movement CopyOfRows(const GroupPlan& plan, int64_t row_bytes) {
  Movement movement{{}, LinkMover::kSender};
  for (int32_t rank = 0; rank < plan.geometry().ranks; ++rank) {
    Traffic& traffic = movement.ranks.emplace_back();
    traffic.read_bytes = plan.placement.used_rows(RankId(rank)) * row_bytes;
    traffic.written_bytes = traffic.read_bytes;
  }
  return movement;
}

Movement PrefetchMovement(const GroupPlan& plan, int64_t expert_bytes) {
  return {PrefetchTraffic(plan.placement, expert_bytes), LinkMover::kReceiver};
}

}  // namespace

MovedBytes Moved(absl::Span<const Movement> movements) {
  MovedBytes moved;
  for (size_t rank = 0; rank < movements[0].ranks.size(); ++rank) {
    Traffic traffic;
    int64_t by_rank = 0;
    for (const Movement& movement : movements) {
      const Traffic& part = movement.ranks[rank];
      traffic += part;
      by_rank += part.read_bytes + part.written_bytes;
      by_rank += movement.mover == LinkMover::kSender ? part.sent_bytes : part.received_bytes;
    }
    const int64_t local = traffic.read_bytes + traffic.written_bytes;
    // What crosses a link is in one rank's count as sent and in another's as received; either way
    // it is one access to the other's memory.
    moved.total_bytes += local + traffic.received_bytes;
    moved.max_local_bytes = std::max(moved.max_local_bytes, local);
    moved.max_link_bytes =
        std::max({moved.max_link_bytes, traffic.sent_bytes, traffic.received_bytes});
    moved.max_rank_bytes = std::max(moved.max_rank_bytes, by_rank);
  }
  return moved;
}

MovedBytes MeanOf(absl::Span<const MovedBytes> operations) {
  const auto mean = [&](int64_t MovedBytes::*bytes) {
    int64_t sum = 0;
    for (const MovedBytes& moved : operations) sum += moved.*bytes;
    return sum / static_cast<int64_t>(operations.size());
  };
  return {mean(&MovedBytes::total_bytes), mean(&MovedBytes::max_local_bytes),
          mean(&MovedBytes::max_link_bytes), mean(&MovedBytes::max_rank_bytes)};
}

MovedBytes DispatchBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved({DispatchMovement(plan, row_bytes)});
}

MovedBytes CombineBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved({CombineMovement(plan, row_bytes)});
}

MovedBytes StagedDispatchBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved({DispatchMovement(plan, row_bytes), CopyOfRows(plan, row_bytes)});
}

MovedBytes StagedCombineBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved({CopyOfRows(plan, row_bytes), CombineMovement(plan, row_bytes)});
}

MovedBytes StepBytes(const GroupPlan& plan, int64_t row_bytes) {
  return Moved({DispatchMovement(plan, row_bytes), CombineMovement(plan, row_bytes)});
}

MovedBytes PrefetchBytes(const GroupPlan& plan, int64_t expert_bytes) {
  return Moved({PrefetchMovement(plan, expert_bytes)});
}

MovedBytes DispatchAndPrefetchBytes(const GroupPlan& plan, int64_t row_bytes,
                                    int64_t expert_bytes) {
  return Moved({DispatchMovement(plan, row_bytes), PrefetchMovement(plan, expert_bytes)});
}

MovedBytes ReduceBytes(const GroupPlan& plan, int64_t expert_bytes) {
  return Moved({{ReduceTraffic(plan.placement, expert_bytes), LinkMover::kReceiver}});
}

double CopyGbPerSecond(const CopyTimes& copy, RankMemory memory, int32_t ranks) {
  const int64_t copies = memory == RankMemory::kOneForAll ? ranks : 1;
  return Rate(kCopyTouches * copies * copy.rank_bytes, copy.own_us);
}

double AloneGbPerSecond(const CopyTimes& copy) {
  return Rate(kCopyTouches * copy.rank_bytes, copy.alone_us);
}

double LinkGbPerSecond(const CopyTimes& copy) { return Rate(copy.rank_bytes, copy.link_us); }

Floor FloorOf(const MovedBytes& bytes, const CopyTimes& copy, RankMemory memory, int32_t ranks) {
  const double copy_rate = CopyGbPerSecond(copy, memory, ranks);
  if (memory == RankMemory::kOneForAll) {
    const double memory_us = Microseconds(bytes.total_bytes, copy_rate);
    // A copy too short to be faster alone tells nothing.
    const bool alone = copy.alone_us > 0 && copy.alone_us < copy.own_us;
    const double rank_us = alone ? Microseconds(bytes.max_rank_bytes, AloneGbPerSecond(copy)) : 0;
    return rank_us > memory_us ? Floor{rank_us, "rank"} : Floor{memory_us, "memory"};
  }
  const double local_us = Microseconds(bytes.max_local_bytes, copy_rate);
  const double link_us = Microseconds(bytes.max_link_bytes, LinkGbPerSecond(copy));
  return link_us > local_us ? Floor{link_us, "link"} : Floor{local_us, "local"};
}

}  // namespace perigee
