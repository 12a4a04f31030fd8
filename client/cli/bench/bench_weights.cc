// What BenchSession measures of experts' weights and gradients. Few experts move and which do is
// the routes' matter, so that bytes are counted for every input, and the same bytes are copied
// plainly.
#include <algorithm>
#include <utility>
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

}  // namespace

absl::StatusOr<std::vector<GroupPlan>> BenchSession::PlanInputs(const Bench& bench) const {
  std::vector<GroupPlan> plans;
  for (const std::vector<int32_t>& routes : bench.routes) {
    auto plan = PlanGroup(bench.plan.geometry(), routes, {});
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

absl::Status BenchSession::MeasurePrefetch(Bench& bench) {
  const auto plans = PlanInputs(bench);
  if (!plans.ok()) return plans.status();
  const int64_t expert_bytes = bench.shape.expert_bytes();
  const int64_t row_bytes = bench.shape.row_bytes();
  std::vector<MovedBytes> prefetched, both;
  std::vector<std::vector<int64_t>> rows;
  for (const GroupPlan& plan : *plans) {
    prefetched.push_back(PrefetchBytes(plan, expert_bytes));
    both.push_back(DispatchAndPrefetchBytes(plan, row_bytes, expert_bytes));
    rows.push_back(FetchedRows(plan, expert_bytes, row_bytes));
  }
  const MovedBytes prefetch_bytes = MeanOf(prefetched);

  const auto times_ns = Execute(bench, PrefetchProgram(options_.inputs));
  if (!times_ns.ok()) return times_ns.status();
  Add(bench, "prefetch_weights", (*times_ns)[0], prefetch_bytes);
  Add(bench, "dispatch_and_prefetch", (*times_ns)[1], MeanOf(both));
  const auto beside_ns = Execute(bench, BesideProgram(options_.inputs));
  if (!beside_ns.ok()) return beside_ns.status();
  Add(bench, "dispatch_beside_prefetch", (*beside_ns)[0], MeanOf(both));
  const BackToBackProgram in_turn = BackToBackPrefetch(options_.inputs);
  const auto in_turn_ns = Execute(bench, in_turn);
  if (!in_turn_ns.ok()) return in_turn_ns.status();
  Add(bench, in_turn.name, *in_turn_ns, prefetch_bytes);

  // A rank's copies stay within its memory: they are those of a prefetch where that is everybody's.
  if (options_.memory != RankMemory::kOneForAll || !FitInHalfAShard(bench.plan, rows)) {
    return absl::OkStatus();
  }
  const BackToBackProgram copies = BackToBackCopies(rows);
  const auto copies_ns = Execute(bench, copies);
  if (!copies_ns.ok()) return copies_ns.status();
  Add(bench, copies.name, *copies_ns, prefetch_bytes);
  return absl::OkStatus();
}

absl::Status BenchSession::MeasureReduce(Bench& bench) {
  const auto plans = PlanInputs(bench);
  if (!plans.ok()) return plans.status();
  const auto times_ns = Execute(bench, ReduceProgram(options_.inputs));
  if (!times_ns.ok()) return times_ns.status();
  const int64_t gradient_bytes =
      bench.shape.expert_bytes() / static_cast<int64_t>(sizeof(BFloat16)) * sizeof(float);
  std::vector<MovedBytes> bytes;
  for (const GroupPlan& plan : *plans) bytes.push_back(ReduceBytes(plan, gradient_bytes));
  Add(bench, "reduce_gradients", (*times_ns)[0], MeanOf(bytes));
  return absl::OkStatus();
}

}  // namespace perigee
