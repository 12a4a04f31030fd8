// The programs of `perigee bench`. Most run their operation once for every input, behind a barrier,
// so that a time begins when all ranks are there; some have operations and nothing between them.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAMS_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/bench_program.h"
#include "proto/v1/program.pb.h"

namespace perigee {

inline constexpr int32_t kBenchLayer = 0;
inline constexpr uint64_t kBenchWeightsVersion = 1;

// Names on the workers, by input.
std::string BenchHidden(int32_t input);
std::string BenchRoutes(int32_t input);
std::string BenchWeights(int32_t input);
std::string BenchOutput(int32_t input);

// Plans each input, under a name of its own.
BenchProgram DispatchProgram(int32_t inputs);
// The programs below use the plans that DispatchProgram has left.
BenchProgram SavedPlanProgram(int32_t inputs);
BenchProgram CombineProgram(int32_t inputs);
// Both with rows that are copied out of the shard and into it, of the first input:
// "dispatch_staged", which plans, and "combine_staged".
BenchProgram StagedProgram();
// Dispatch, prefetch_weights, run_experts and combine, and their sum.
BenchProgram BenchLayerProgram(int32_t inputs);
// prefetch_weights alone, and a dispatch that plans with the prefetch behind it.
BenchProgram PrefetchProgram(int32_t inputs);
// "dispatch_beside_prefetch": a dispatch that plans, and beside it the prefetch by its plan.
BenchProgram BesideProgram(int32_t inputs);
BenchProgram ReduceProgram(int32_t inputs);
// A copy within the shard, or to the next rank's.
BenchProgram CopyProgram(bool to_next_rank);
// A copy within rank 0's shard, nobody else doing anything.
BenchProgram CopyAloneProgram();

// The inputs in turn, several times in an iteration. These too use the plans of DispatchProgram.
BackToBackProgram BackToBackDispatch(int32_t inputs);
BackToBackProgram BackToBackSavedPlan(int32_t inputs);
BackToBackProgram BackToBackPrefetch(int32_t inputs);
// "copy_back_to_back": copies within the shards instead, each behind a barrier. rows: [inputs] of
// [R], as many of each rank.
BackToBackProgram BackToBackCopies(const std::vector<std::vector<int64_t>>& rows);
// "barrier_back_to_back": as many barriers as those copies have, and nothing else.
BackToBackProgram BackToBackBarriers(int32_t inputs);
// A dispatch by saved plan and a combine are one step: a combine consumes its rows. An iteration
// has as many operations as those of the others.
BackToBackProgram BackToBackStep(int32_t inputs);

// Layers of so many micro-batches, which take turns at the inputs, one behind the other. With slots
// each is dispatched into the next one in turn, as many ahead of the experts as there are slots
// for, as a pipeline has it (1F1B); without, into the shard when the last one is done. The output
// of micro-batch i is BenchOutput(i).
struct MicroBatches {
  int32_t inputs = 1;
  int32_t count = 1;
  int32_t pending = 0;        // dispatched ahead
  bool slots = false;         // dispatch-output slots, pending + 1 or more
  bool expert_slots = false;  // an expert-output slot; else results go to the shard
};
BackToBackProgram MicroBatchProgram(const std::string& name, const MicroBatches& batches);

// What a program that has ended reports: [R] of [iterations * inputs] times in order, those of the
// first `warmup` iterations left out. INTERNAL where a rank reports fewer.
absl::StatusOr<std::vector<std::vector<int64_t>>> TimesOf(
    const TimedOperation& operation, const std::vector<std::vector<v1::OperationTiming>>& timings,
    int32_t warmup, int32_t iterations);
// ranks_ns: [R] of the times of iterations. [R] of [iterations], each divided by program.count.
absl::StatusOr<std::vector<std::vector<int64_t>>> TimesOf(
    const BackToBackProgram& program, const std::vector<std::vector<int64_t>>& ranks_ns,
    int32_t warmup, int32_t iterations);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAMS_H_
