// What BenchSession measures of experts' weights and gradients. Few experts move and which do is
// the routes' matter, so that bytes are counted for every input, and the same bytes are copied
// plainly.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "client/cli/bench/bench_session.h"
#include "kernels/plan/bytes.h"

namespace perigee {
namespace {

// Rows of H elements that make up what each rank fetches, as every expert's part is.
std::vector<int64_t> FetchedRows(const GroupPlan& plan, int64_t expert_bytes, int64_t row_bytes) {
  std::vector<int64_t> rows;
  for (const Traffic& traffic : PrefetchTraffic(plan.placement, expert_bytes)) {
    rows.push_back(traffic.received_bytes / row_bytes);
  }
  return rows;
}

bool FitInHalfAShard(const GroupPlan& plan, const std::vector<std::vector<int64_t>>& rows) {
  int64_t most = 0;
  for (const std::vector<int64_t>& of_input : rows) {
    most = std::max(most, *std::max_element(of_input.begin(), of_input.end()));
  }
  return most <= plan.geometry().logical_rows() / 2;
}

// bytes: of one input's plan.
MovedBytes MeanBytes(const std::vector<GroupPlan>& plans,
                     const std::function<MovedBytes(const GroupPlan&)>& bytes) {
  std::vector<MovedBytes> moved;
  for (const GroupPlan& plan : plans) moved.push_back(bytes(plan));
  return MeanOf(moved);
}

MovedBytes MeanPrefetchBytes(const std::vector<GroupPlan>& plans, int64_t expert_bytes) {
  return MeanBytes(plans, [&](const GroupPlan& plan) { return PrefetchBytes(plan, expert_bytes); });
}

}  // namespace

absl::Status BenchSession::MeasureLayer(Bench& bench) {
  const BenchProgram program = BenchLayerProgram(options_.inputs);
  const auto times_ns = Execute(bench, program);
  if (!times_ns.ok()) return times_ns.status();
  const int64_t expert_bytes = bench.shape.expert_bytes();
  for (size_t i = 0; i < program.timed.size(); ++i) {
    const std::string& name = program.timed[i].name;
    absl::optional<MovedBytes> bytes;
    if (name == "prefetch_weights") bytes = MeanPrefetchBytes(bench.plans, expert_bytes);
    Add(bench, name, (*times_ns)[i], bytes);
  }
  return absl::OkStatus();
}

absl::Status BenchSession::MeasurePrefetch(Bench& bench) {
  const int64_t expert_bytes = bench.shape.expert_bytes();
  const MovedBytes prefetched = MeanPrefetchBytes(bench.plans, expert_bytes);
  const MovedBytes both = MeanBytes(bench.plans, [&](const GroupPlan& plan) {
    return DispatchAndPrefetchBytes(plan, bench.shape.row_bytes(), expert_bytes);
  });
  const auto times_ns = Execute(bench, PrefetchProgram(options_.inputs));
  if (!times_ns.ok()) return times_ns.status();
  Add(bench, "prefetch_weights", (*times_ns)[0], prefetched);
  Add(bench, "dispatch_and_prefetch", (*times_ns)[1], both);
  const auto beside_ns = Execute(bench, BesideProgram(options_.inputs));
  if (!beside_ns.ok()) return beside_ns.status();
  Add(bench, "dispatch_beside_prefetch", (*beside_ns)[0], both);
  const BackToBackProgram in_turn = BackToBackPrefetch(options_.inputs);
  const auto in_turn_ns = Execute(bench, in_turn);
  if (!in_turn_ns.ok()) return in_turn_ns.status();
  Add(bench, in_turn.name, *in_turn_ns, prefetched);
  return MeasureCopies(bench, prefetched);
}

absl::Status BenchSession::MeasureCopies(Bench& bench, const MovedBytes& prefetched) {
  std::vector<std::vector<int64_t>> rows;
  for (const GroupPlan& plan : bench.plans) {
    rows.push_back(FetchedRows(plan, bench.shape.expert_bytes(), bench.shape.row_bytes()));
  }
  // A rank's copies stay within its memory: they are those of a prefetch where that is everybody's.
  if (options_.memory != RankMemory::kOneForAll || !FitInHalfAShard(bench.plan(), rows)) {
    return absl::OkStatus();
  }
  const BackToBackProgram copies = BackToBackCopies(rows);
  const auto copies_ns = Execute(bench, copies);
  if (!copies_ns.ok()) return copies_ns.status();
  Add(bench, copies.name, *copies_ns, prefetched);
  const BackToBackProgram barriers = BackToBackBarriers(options_.inputs);
  const auto barriers_ns = Execute(bench, barriers);
  if (!barriers_ns.ok()) return barriers_ns.status();
  Add(bench, barriers.name, *barriers_ns, absl::nullopt);
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureReduce(Bench& bench) {
  const auto times_ns = Execute(bench, ReduceProgram(options_.inputs));
  if (!times_ns.ok()) return times_ns.status();
  const int64_t gradient_bytes =
      bench.shape.expert_bytes() / static_cast<int64_t>(sizeof(BFloat16)) * sizeof(float);
  Add(bench, "reduce_gradients", (*times_ns)[0], MeanBytes(bench.plans, [&](const GroupPlan& plan) {
        return ReduceBytes(plan, gradient_bytes);
      }));
  return absl::OkStatus();
}

}  // namespace perigee
