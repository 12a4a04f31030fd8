// Measures one shape after another on one group.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_SESSION_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_SESSION_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/bench/bench_programs.h"
#include "client/cli/bench/bench_result.h"
#include "client/lib/client.h"
#include "client/lib/program_monitor.h"
#include "client/lib/rank_tensors.h"
#include "kernels/common/bfloat16.h"
#include "kernels/plan/plan.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

// Not thread-safe; a stop request ends every call but Delete with CANCELLED.
class BenchSession {
 public:
  // Borrows client.
  BenchSession(Client& client, const BenchOptions& options, std::stop_token stop);

  // Makes the group.
  absl::Status Create();
  // Makes a buffer of the shape, writes inputs, measures what the options want, compares and
  // removes the buffer. The shape must have passed CheckBenchShape.
  absl::StatusOr<ShapeResult> Measure(const BenchShape& shape);
  // Removes the group, if there is one.
  absl::Status Delete();

  // After Create: what rank 0 computes on, in words.
  const std::string& device() const { return device_; }

 private:
  // Everything of one shape.
  struct Bench {
    BenchShape shape;
    std::string buffer;
    std::vector<std::vector<int32_t>> routes;  // [inputs] of [R, S, K]
    std::vector<GroupPlan> plans;              // [inputs]; rows are counted of the first
    const GroupPlan& plan() const { return plans[0]; }
    int32_t dispatch_output_slots = 0;
    int32_t expert_output_slots = 0;
    // Of BackToBackSavedPlan, once measured.
    std::vector<int64_t> saved_plan_back_to_back_ns;
    ShapeResult result;
  };

  absl::Status CreateBuffer(Bench& bench);
  absl::StatusOr<ShapeResult> MeasureRings(Bench& bench);
  // One way, on a buffer of its own; `outputs`: of rank 0, by micro-batch.
  absl::Status MeasureRing(Bench& bench, RingResult ring, std::vector<std::string>& outputs);
  absl::Status WriteInputs(const Bench& bench, RankTensors& tensors) const;
  absl::Status LoadWeights(const Bench& bench, RankTensors& tensors) const;
  absl::Status WriteFactors(const Bench& bench, RankTensors& tensors) const;
  absl::Status MeasureCopy(Bench& bench);
  // All but paths.
  absl::Status MeasureOperations(Bench& bench, RankTensors& tensors);
  absl::Status MeasureDispatch(Bench& bench);
  absl::Status MeasureDispatchBackToBack(Bench& bench);
  absl::Status MeasureSavedPlanBackToBack(Bench& bench);
  absl::Status MeasureCombine(Bench& bench, RankTensors& tensors);
  absl::Status MeasureStepBackToBack(Bench& bench);
  absl::Status MeasureStaged(Bench& bench, RankTensors& tensors);
  absl::Status MeasureLayer(Bench& bench);
  absl::Status MeasurePrefetch(Bench& bench);
  // Plain copies of what a prefetch fetches, where there can be such.
  absl::Status MeasureCopies(Bench& bench, const MovedBytes& prefetched);
  absl::Status MeasureReduce(Bench& bench);
  // A producer's rows by every path.
  absl::Status MeasureDirect(Bench& bench, RankTensors& tensors);
  absl::Status CheckPaths(Bench& bench, RankTensors& tensors);
  // Rows that are there, dispatched and fetched.
  absl::Status MeasurePull(Bench& bench, RankTensors& tensors);
  absl::Status CheckPulled(Bench& bench, RankTensors& tensors);
  absl::Status Compare(Bench& bench, RankTensors& tensors, const std::string& ordinary,
                       const std::string& other);
  absl::Status MeasureWanted(Bench& bench, RankTensors& tensors);
  // What experts are needed for.
  bool WantsWeights(const BenchShape& shape) const;
  absl::Status CheckOutputs(Bench& bench, RankTensors& tensors) const;

  absl::StatusOr<ProgramMonitor> Run(const Bench& bench, const v1::Program& program);
  // One entry for each of program.timed: the slowest rank's times in order.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Execute(const Bench& bench,
                                                            const BenchProgram& program,
                                                            int32_t warmup, int32_t iterations);
  absl::StatusOr<std::vector<std::vector<int64_t>>> Execute(const Bench& bench,
                                                            const BenchProgram& program) {
    return Execute(bench, program, options_.warmup, options_.iterations);
  }
  // The slowest rank's times, one for each iteration.
  absl::StatusOr<std::vector<int64_t>> Execute(const Bench& bench,
                                               const BackToBackProgram& program);
  void Add(Bench& bench, const std::string& name, const std::vector<int64_t>& times_ns,
           absl::optional<MovedBytes> bytes) const;
  std::vector<BFloat16> Hidden(const Bench& bench, int32_t input, RankId rank,
                               int64_t tokens) const;

  Client& client_;
  const BenchOptions options_;
  const std::stop_token stop_;
  v1::Group group_;
  std::string device_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_SESSION_H_
