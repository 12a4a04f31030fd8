// plan, dispatch and combine on the host backend, ranks as threads of one process. Beside each time
// stands what a plain memcpy of the bytes that must move (kernels/plan/bytes.h) takes in the same
// run, by as many threads, and how many times as long the operation takes.
//
//   bazel run //tests/bench:data_path_bench -- --benchmark_filter=Dispatch
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/host/host_backend.h"
#include "kernels/host/thread_pool.h"
#include "kernels/plan/bytes.h"
#include "kernels/plan/plan.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using Timer = std::chrono::steady_clock;

double Seconds(Timer::time_point since) {
  return std::chrono::duration<double>(Timer::now() - since).count();
}

struct Shape {
  Geometry geometry;
  int32_t hidden;
};

// R, S, H, K, E; B = E / R and P = 128.
Shape ShapeOf(const benchmark::State& state) {
  const auto arg = [&](int i) { return static_cast<int32_t>(state.range(i)); };
  return {{.ranks = arg(0),
           .experts = arg(4),
           .tokens = arg(1),
           .topk = arg(3),
           .slots = arg(4) / arg(0)},
          arg(2)};
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"R", "S", "H", "K", "E"})
      ->Args({2, 1024, 2048, 8, 64})
      ->Args({8, 256, 2048, 8, 64})
      ->Args({8, 1024, 1024, 8, 256})
      ->Args({1, 1024, 2048, 8, 64})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

// One thread for each rank, kept between iterations.
class Ranks {
 public:
  explicit Ranks(int32_t ranks) : ranks_(ranks), pool_(ranks) {}
  // Seconds until body(rank) has ended on every rank.
  double Run(const std::function<void(int32_t)>& body) {
    const Timer::time_point start = Timer::now();
    // An operation waits for the others, so no thread can take two ranks.
    pool_.ParallelFor(ranks_, 1, [&](int64_t rank, int64_t) { body(static_cast<int32_t>(rank)); });
    return Seconds(start);
  }

 private:
  const int32_t ranks_;
  ThreadPool pool_;
};

// Median seconds of copying so much that as many bytes are read and written in all, cut evenly
// among the ranks' threads.
double MemcpySeconds(Ranks& ranks, int32_t count, int64_t bytes_moved) {
  constexpr int kRuns = 15;
  const size_t bytes = std::max<int64_t>(bytes_moved / 2 / count, 1);
  std::vector<std::vector<char>> from(count, std::vector<char>(bytes, 1));
  std::vector<std::vector<char>> to(count, std::vector<char>(bytes, 2));
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    seconds.push_back(ranks.Run([&](int32_t rank) {
      std::memcpy(to[rank].data(), from[rank].data(), bytes);
      benchmark::DoNotOptimize(to[rank].data());
      benchmark::ClobberMemory();
    }));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

// Each byte over the link is sent by one rank and received by another: it is stored or loaded once.
int64_t BytesMoved(const std::vector<Traffic>& ranks) {
  const Traffic total = Total(ranks);
  return total.read_bytes + total.written_bytes + total.sent_bytes;
}

void Report(benchmark::State& state, Ranks& ranks, int32_t count, int64_t bytes_moved,
            double seconds) {
  const double memcpy_seconds = MemcpySeconds(ranks, count, bytes_moved);
  const double mean = seconds / static_cast<double>(std::max<int64_t>(state.iterations(), 1));
  state.counters["MB_moved"] = static_cast<double>(bytes_moved) * 1e-6;
  state.counters["memcpy_us"] = memcpy_seconds * 1e6;
  state.counters["times_memcpy"] = mean / memcpy_seconds;
}

// A group with its input and what the operations move.
class Setup {
 public:
  explicit Setup(const Shape& shape)
      : backend(CreateHostBackend()), group(*backend, OptionsFor(shape)), ranks(group.ranks()) {
    std::mt19937_64 random(1);
    const GroupInput input = PlainGroup(random, shape.geometry);
    inputs = NamedInputs(input, shape.hidden, 1);
    for (RankInput& rank : inputs) rank.hidden = NormalNumbers(random, rank.hidden.size(), 1.0);
    const absl::StatusOr<GroupPlan> plan =
        PlanGroup(shape.geometry, input.topk_experts, input.token_counts);
    PERIGEE_CHECK(plan.ok());
    const ElementCosts costs = {shape.hidden * int64_t{sizeof(BFloat16)}, true,
                                shape.geometry.topk};
    std::vector<Traffic> dispatch;
    std::vector<Traffic> combine;
    for (const RowCounts& rows : CountRows(*plan)) {
      dispatch.push_back(DispatchTraffic(rows, costs));
      combine.push_back(LocalSumTraffic(rows, costs));
      combine.back() += CombineTraffic(rows, costs);
    }
    dispatch_bytes = BytesMoved(dispatch);
    combine_bytes = BytesMoved(combine);
    plans.resize(group.ranks());
    Dispatch();  // the first touches memory that no later one has to
  }

  double Dispatch() {
    const Sequence sequence = group.NextSequence();
    return ranks.Run([&](int32_t rank) {
      const RankInput& input = inputs[rank];
      absl::StatusOr<PlanPtr> plan =
          group.path(rank).Dispatch(sequence,
                                    {input.hidden.data(), input.topk_experts.data(),
                                     input.route_weights.data(), input.token_count},
                                    {});
      PERIGEE_CHECK(plan.ok());
      plans[rank] = *std::move(plan);
    });
  }

  std::unique_ptr<Backend> backend;
  RankGroup group;
  Ranks ranks;
  std::vector<RankInput> inputs;  // [R]
  std::vector<PlanPtr> plans;     // [R]
  int64_t dispatch_bytes = 0;
  int64_t combine_bytes = 0;

 private:
  static RankGroupOptions OptionsFor(const Shape& shape) {
    RankGroupOptions options;
    options.geometry = shape.geometry;
    options.hidden = shape.hidden;
    return options;
  }
};

// Planning alone, by each rank for itself as in a dispatch, without barriers and rows.
void BM_Plan(benchmark::State& state) {
  const Shape shape = ShapeOf(state);
  std::mt19937_64 random(1);
  const GroupInput input = PlainGroup(random, shape.geometry);
  Ranks one(1);
  double seconds = 0.0;
  for (auto _ : state) {
    const double run = one.Run([&](int32_t) {
      const auto plan = PlanGroup(shape.geometry, input.topk_experts, input.token_counts);
      PERIGEE_CHECK(plan.ok());
      benchmark::DoNotOptimize(plan->dst.data());
    });
    seconds += run;
    state.SetIterationTime(run);
  }
  // Every route is read, every destination written.
  const int64_t bytes = int64_t{2} * sizeof(int32_t) * input.topk_experts.size();
  Report(state, one, 1, bytes, seconds);
}

void BM_Dispatch(benchmark::State& state) {
  Setup setup(ShapeOf(state));
  double seconds = 0.0;
  for (auto _ : state) {
    const double run = setup.Dispatch();
    seconds += run;
    state.SetIterationTime(run);
  }
  Report(state, setup.ranks, setup.group.ranks(), setup.dispatch_bytes, seconds);
}

void BM_Combine(benchmark::State& state) {
  Setup setup(ShapeOf(state));
  const Geometry& geometry = setup.group.geometry();
  std::vector<std::vector<BFloat16>> hidden(
      geometry.ranks,
      std::vector<BFloat16>(static_cast<size_t>(geometry.tokens) * setup.group.hidden()));
  std::vector<std::vector<float>> weights(geometry.ranks, std::vector<float>(geometry.routes()));
  double seconds = 0.0;
  for (auto _ : state) {
    setup.Dispatch();  // combine in place consumes the rows
    const Sequence sequence = setup.group.NextSequence();
    const double run = setup.ranks.Run([&](int32_t rank) {
      DataPath& path = setup.group.path(rank);
      PERIGEE_CHECK(path.Combine(sequence, setup.plans[rank], {path.rows(), path.row_weights()},
                                 {hidden[rank].data(), weights[rank].data()})
                        .ok());
    });
    seconds += run;
    state.SetIterationTime(run);
  }
  Report(state, setup.ranks, setup.group.ranks(), setup.combine_bytes, seconds);
}

BENCHMARK(BM_Plan)->Apply(Shapes);
BENCHMARK(BM_Dispatch)->Apply(Shapes);
BENCHMARK(BM_Combine)->Apply(Shapes);

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("device", perigee::CreateHostBackend()->info().device);
  benchmark::AddCustomContext(
      "ranks",
      "threads of one process; more ranks than cores take turns, and so does their memcpy");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
