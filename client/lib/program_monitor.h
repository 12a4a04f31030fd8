// How far a program has come, gathered from the messages of its stream and, where a program is
// continued after a loss, over several programs.
#ifndef PERIGEE_CLIENT_LIB_PROGRAM_MONITOR_H_
#define PERIGEE_CLIENT_LIB_PROGRAM_MONITOR_H_

#include <cstdint>
#include <vector>

#include "proto/v1/groups.pb.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// Not thread-safe.
class ProgramMonitor {
 public:
  explicit ProgramMonitor(int32_t ranks);

  void Update(const v1::ExecuteProgramResponse& message);
  // What follows is another program that does the rest: what was counted so far stays.
  void StartNext();

  // Iterations that have ended on every rank, over all programs.
  int32_t iterations_done() const;
  // [R] of [operations of the program]: sums and extremes over all programs.
  std::vector<std::vector<v1::OperationTiming>> timings() const;
  // [R] of the iterations of programs that have time_iterations, in order.
  std::vector<std::vector<int64_t>> iterations_ns() const;
  // [R]: of the last plan each rank has reported.
  const std::vector<v1::PlanSummary>& plans() const { return plans_; }

 private:
  std::vector<v1::ProgramProgress> now_;  // [R] of the program that runs
  std::vector<std::vector<v1::OperationTiming>> earlier_;
  std::vector<std::vector<int64_t>> earlier_iterations_ns_;
  std::vector<v1::PlanSummary> plans_;
  int32_t earlier_iterations_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_PROGRAM_MONITOR_H_
